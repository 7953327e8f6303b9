"""What the tables say of the compilers that a log names: which one this CUDA takes, and which CUDA takes this one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rekindle.compat.host_compiler import newest_gcc, takes_compiler, toolset_range, toolsets_of
from rekindle.compat.judgement import Clash, Fits
from rekindle.compat.toolkit_card import able_toolkits, compiles
from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.diagnose.driver_facts import version_of
from rekindle.diagnose.facts import Facts, present
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.logs.extension_homes import distribution, package_of
from rekindle.knowledge.torch import releases
from rekindle.model.cuda_line import CudaLine
from rekindle.model.host_compiler import gcc

# The first GCC that has a standard; nvcc has 17 since CUDA 11.0 and 20 since 12.0.
_GCC_WITH = {"11": "5", "14": "5", "17": "8", "20": "11", "23": "14"}
_CUDA_WITH = {"14": "9.0", "17": "11.0", "20": "12.0"}
_PRELIMINARY = {"0x": "11", "1y": "14", "1z": "17", "2a": "20", "2b": "23"}
# Before it, a GCC's number in a path says too little; before the second, the tables do not reach back.
_OLDEST, _IN_TABLES = 6, 9
# This CUDA accepts the GCC and cannot read its headers.
_MISREADS = {"11": "11.5"}
# `_Float32` is a type of C++ since this GCC.
_FIRST_WITH_FLOATS = "13"
_NO_PACKAGES = frozenset({"torch", "pytorch", "wheel", "wheels"})
_YEAR = re.compile(r"20\d\d")


def values(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    fitting = _fitting(facts.cuda) if facts.cuda else {}
    here = fields.get("gcc_here") or (_FIRST_WITH_FLOATS if "float_types" in fields else "")
    found = fitting | _gcc(here, fitting.get("fits_gcc"), facts)
    found |= _studio(facts) | _standard(fields) | _torch_lines(fields.get("found", ""), facts) | _no_way(fields, facts)
    line, needs = CudaLine.parse(facts.variant), Version.find(fields.get("needs", ""))
    found |= present(
        std_name=fields.get("std_int"),
        std_header="cstdint" if "std_int" in fields else None,
        early_toolset=package_of(facts.cuda or "", kind="toolset"),
        bundled_package=package_of(fields.get("bundled", ""), kind="bundled"),
        new_torch_name=package_of(fields.get("old_name", ""), kind="torch_name"),
        ptx_cuda=_ptx(fields.get("ptx_given", "")),
        generator_cmake=package_of(fields.get("generator_year", ""), kind="generator"),
        name_cuda=package_of(fields.get("new_name", ""), kind="cuda_name"),
        nvidia_part=package_of(fields.get("nvidia_library", ""), kind="nvidia_folder"),
        torch_cuda_line=line and line.cuda,
        # What is compiled must have the CUDA of torch, where that is new enough.
        toolkit_fits=line.cuda if line and needs and line.cuda >= needs else needs,
        wanted_package=_wanted(fields, facts),
    )
    return found | _toolsets(fields, facts) | _tool(fields.get("program", ""))


def fits(facts: Facts) -> str | None:
    """The newest toolset of MSVC that the CUDA of the log takes."""
    return _fitting(facts.cuda).get("fits_toolset") if facts.cuda else None


def _toolsets(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    """`toolset_cuda`: the first CUDA that takes the toolset of the log; `stl_toolset`: the last before a demand."""
    found: dict[str, str] = {}
    ranges = [(version, toolset_range(version)) for version in _releases()]
    if facts.toolset:
        here = Version(facts.toolset)
        taking = [version for version, span in ranges if span and span[1] >= here]
        if taking and (facts.cuda is None or taking[0] > Version(facts.cuda)):
            found["toolset_cuda"] = str(taking[0])
    misread = fields.get("misread_toolset")
    if misread:
        limit = Version(fits(facts) or misread)
        older = [each for each in toolsets_of(None) if each < Version(misread) and each <= limit]
        found |= present(older_toolset=max(older, default=None))
    demand = fields.get("needs", "")
    if re.fullmatch(r"\d+\.\d+", demand):
        before = [span[1] for version, span in ranges if span and version < Version(demand)]
        found |= present(stl_toolset=max(before, default=None))
    return found


def _ptx(given: str) -> Version | None:
    """The first CUDA that writes this version of PTX."""
    having = ((row.version, row.ptx_isa) for row in toolkits.toolkits() if given)
    return next((version for version, isa in having if isa is not None and isa >= Version(given)), None)


def _tool(program: str) -> dict[str, str]:
    """`x86_64-linux-gnu-gcc` and `/usr/bin/g++-12` are compilers of GCC."""
    name = re.split(r"[/\\]", program)[-1]
    plain = re.sub(r"^[\w]+-(?:conda-)?linux-gnu-|-[\d.]+$|\.exe$", "", name)
    package, winget = package_of(plain, kind="tool"), package_of(plain, kind="winget")
    numbered = re.fullmatch(r"(?:gcc|g\+\+)-(\d{1,9})", name)
    return present(tool_package=package and (f"g++-{numbered[1]}" if numbered else package), tool_winget=winget)


def _wanted(fields: Mapping[str, str], facts: Facts) -> str | None:
    """The package that is being built, by the name it is installed by."""
    asked = fields.get("asked_package") or facts.package
    return None if not asked or asked in _NO_PACKAGES else distribution(asked) or asked


def _fitting(cuda: str) -> dict[str, str]:
    """The newest compilers that this CUDA takes, where the tables know."""
    version = version_of(cuda)
    toolsets = toolset_range(version) if version else None
    return present(fits_toolset=toolsets and toolsets[1], fits_gcc=version and newest_gcc(version))


def _gcc(here: str, fits: str | None, facts: Facts) -> dict[str, str]:
    """`gcc_wanted`: the GCC to give to nvcc, which cannot read the headers of the one that is there."""
    major = int(here) if here.isdigit() else 0
    if major < _OLDEST:
        return {}
    wanted = int(fits) if fits and int(fits) < major else major - 1
    found = {"gcc_here": here, "gcc_wanted": str(wanted)}
    if major < _IN_TABLES:
        return found
    floor = max(Version(facts.cuda or "0"), Version(_MISREADS.get(here, "0")))
    taking = [
        version for version in _releases() if version > floor and isinstance(takes_compiler(version, gcc(major)), Fits)
    ]
    return found | present(gcc_cuda=next(iter(taking), None))


def _releases() -> Sequence[Version]:
    return sorted(row.version for row in toolkits.toolkits())


def _studio(facts: Facts) -> dict[str, str]:
    folder = facts.studio.replace("/", "\\") if facts.studio else None
    year = facts.studio_year or next(iter(_YEAR.findall(folder or "")), None)
    return present(studio=folder, studio_year=year, customizations=package_of(year or "", kind="customizations"))


def _standard(fields: Mapping[str, str]) -> dict[str, str]:
    """A compiler that does not know `-std=c++17`: the first that does."""
    asked = fields.get("std_unknown") or fields.get("nvcc_std_unknown") or ""
    number = _PRELIMINARY.get(asked, asked)
    return present(
        std_gcc="std_unknown" in fields and _GCC_WITH.get(number),
        std_cuda="nvcc_std_unknown" in fields and _CUDA_WITH.get(number),
    )


def _no_way(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    """The card, where not even the toolkit of its torch compiles for it."""
    built = version_of(fields.get("torch_cuda"))
    lacks = built and facts.gpus and isinstance(compiles(built, min(facts.gpus), ""), Clash)
    return {"torch_toolkit_lacks": min(facts.gpus).sm} if lacks else {}


def _torch_lines(toolkit: str, facts: Facts) -> dict[str, str]:
    """The indexes whose torch was built with the major release of this toolkit, unless it has dropped the card."""
    major = toolkit.partition(".")[0]
    if not major.isdigit():
        return {}
    try:
        names = {variant.name for row in releases.torch_releases() for variant in row.variants}
        gone = bool(facts.gpus) and toolkits.toolkit(toolkit).version not in able_toolkits(min(facts.gpus))
    except (RekindleError, ValueError):
        return {}
    if gone:
        return {"found_lacks": min(facts.gpus).sm, "found_major": major}
    having = sorted(name for name in names if (line := CudaLine.parse(name)) and line.cuda.major == int(major))
    listed = ", ".join(f"`{name}`" for name in having)
    return present(torch_lines=listed, found_major=major)
