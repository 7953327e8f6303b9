"""What the tables say of the package that a log blames: where its builds are, and the command for this torch."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.compat.extension_torch import ABIS, official_abi
from rekindle.core.version import Range, Version
from rekindle.diagnose.facts import Facts, present
from rekindle.diagnose.symbols import plain_name
from rekindle.knowledge.builds import extension_builds
from rekindle.knowledge.builds.extension_files import files
from rekindle.knowledge.cuda.toolkits import toolkits
from rekindle.knowledge.logs.extension_homes import (
    ExtensionHome,
    distribution,
    for_glibc,
    home,
    meant,
    python_names,
    wheel_for,
    wheels,
)
from rekindle.model.cuda_line import CudaLine

_ASK = 'the torch that is installed (`python -c "import torch; print(torch.__version__)"` prints it)'
_OWN = frozenset({"torch", "torchvision", "torchaudio"})
# Of whole releases only: `0.52.0 Requires-Python >=3.6,<3.9`.
_BOUND = r"(?:[<>]=?|[=!]=) ?\d{1,3}(?:\.\d{1,3}){0,3}"
_REQUIRES = re.compile(rf"\b(\d{{1,6}}(?:\.\d{{1,6}}){{0,5}}) Requires-Python ({_BOUND}(?:, ?{_BOUND})*)")
_PYTHONS = tuple(f"3.{minor}" for minor in range(14, 5, -1))
_REINSTALL = "pip install --force-reinstall --no-cache-dir --no-deps"
# The C library of Ubuntu 20.04 and Debian 11, the oldest that people still ask about.
_OLD_GLIBC = "2.31"


def _offered(package: str, said: str) -> dict[str, str]:
    """Of the releases that pip lists, the last of the one that was asked for (1.2.0.post2 for 1.2.0).

    Or the newest, where something newer was asked for.
    """
    asked = re.search(r"[=>]=(\d{1,9}(?:\.\d{1,9}){0,7})\Z", package)
    found = _for_python(asked[1] if asked else None, said)
    listed = re.search(r"\(from versions: ([\w., +]{1,4000})\)", said)
    every = listed[1].split(", ") if listed and listed[1] != "none" else []
    if not asked or not every:
        return found
    newest = Version.find(every[-1])
    older = newest is not None and newest < Version(asked[1])
    same = [each for each in every if each.startswith(f"{asked[1]}.")]
    return found | present(nearest_release=same[-1] if same else None, newest_offered=every[-1] if older else None)


def _for_python(asked: str | None, said: str) -> dict[str, str]:
    """The newest Python that the release that is asked for takes (or the newest release), where pip says it."""
    told = dict(_REQUIRES.findall(said.replace(".*", "")))
    chosen = asked if asked in told else max(told, key=Version.parse, default=None)
    takes = Range(told[chosen]) if chosen else None
    return present(
        requires_python=takes and takes.text,
        python_fits=next((each for each in _PYTHONS if takes and takes.holds(each)), None),
    )


def values(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    local = f"+{facts.variant}" if facts.variant else ""
    have = fields.get("have", facts.torch)
    xformers = wheel_for("xformers", have) if have else None
    codec = wheel_for("torchcodec", facts.torch) if facts.torch else None
    triton = [row for row in files("triton-windows") if facts.torch and row.builds_for(facts.torch)]
    failing = fields.get("failing", "torch")
    python = fields.get("wheel_cp")
    said = fields.get("torch_cuda_said")
    found = present(
        torch_here=f"torch {facts.torch}{local}, which is installed" if facts.torch else _ASK,
        xformers_fits=xformers and xformers.version,
        torchcodec_fits=codec and codec.version,
        triton_windows=triton[0].requirement if triton else None,
        package_story=_asked_release(fields.get("package", ""), facts),
        asking=failing if failing not in _OWN else None,
        bnb_before=_cuda_before(fields.get("bnb_cuda", "")),
        said_line=said and CudaLine(Version(said)).name,
        module_meant=meant(fields.get("module", "")),
        wheel_python=python and f"{python[0]}.{python[1:]}",
    )
    found |= _offered(fields.get("package", ""), fields.get("said", "")) | _missing(fields.get("module", ""), facts)
    asked = {
        name.replace("missing", "package"): said
        for name, said in _missing(plain_name(fields.get("package", "")), facts).items()
    }
    found |= {name: said for name, said in asked.items() if name != "package_home"}
    lacking = fields.get("torch_name") or fields.get("lacking", "")
    known = python_names().get(f"{fields.get('lacking_package')}.{lacking}") or python_names().get(lacking)
    if known is not None:
        found |= present(name_since=known.since, name_gone=known.gone, name_package=known.package)
    row = home(fields.get("owner") or fields.get("failing", ""))
    if row is None:
        return found
    if row.abi_in_names:
        found |= _abi(fields.get("said", ""), facts)
    old = for_glibc(row.package, _OLD_GLIBC, facts.torch)
    forced = (each for each in extension_builds.settings(row.package, None) if each.name.endswith("_FORCE_BUILD"))
    return found | present(
        home=row.package,
        home_forced=next((f"{each.name}={each.value}" for each in forced), None),
        home_where=_where(row, facts),
        home_fits=_fits(row, facts),
        old_system_release=old and old.version,
        home_install=_command(row, facts),
    )


def _where(row: ExtensionHome, facts: Facts) -> str:
    where = row.windows if facts.os == "windows" and row.windows else row.builds
    return where[:1].upper() + where[1:]


def _cuda_before(digits: str) -> str | None:
    """The CUDA before this one, of the same major version: there was no 12.7, so `126` goes before `128`."""
    line = CudaLine.parse(f"cu{digits}")
    if line is None:
        return None
    asked = line.cuda
    older = [each.version for each in toolkits() if each.version.major == asked.major and each.version < asked]
    return str(max(older).major_minor).replace(".", "") if older else None


def _missing(module: str, facts: Facts) -> dict[str, str]:
    """A package that is not there at all, where installing it takes more than its name."""
    row = home(module) if module else None
    if row is None:
        return {}
    command = (_command(row, facts) or "").replace(_REINSTALL, "pip install")
    return present(missing_home=row.package, missing_where=_where(row, facts), missing_install=command)


def _asked_release(requirement: str, facts: Facts) -> str | None:
    """Which torch the release that is asked for was made for, and which release is for the torch that is there."""
    name, _, version = requirement.partition("==")
    row = home(name) if version else None
    made = next((each for each in wheels(row.package) if each.version == version), None) if row else None
    if row is None or made is None:
        return None
    said = f"{row.package} {version} is for torch {_span(made.torch)}"
    fitting = wheel_for(row.package, facts.torch) if facts.torch else None
    if fitting is None or fitting.version == version:
        line = f", or another CUDA of that index: {facts.index} may lack it for your system" if facts.index else ""
        return f"{said}: take the release for your torch, or a Python that this one has wheels for{line}."
    return f"{said}; for torch {facts.torch}, which is installed, take {row.package} {fitting.version}."


def _fits(row: ExtensionHome, facts: Facts) -> str | None:
    """The release for this torch; where the torch is not known, for which torch the newest releases are."""
    known = wheels(row.package)
    if not known or (facts.os == "windows" and not row.compiles_on_windows):
        return None
    if facts.torch is None:
        # `2.8` is what all releases that begin so have.
        single = [each for each in known if each.version.count(".") > 1] or known
        said = [f"{each.version} for torch {_span(each.torch)}" for each in single[-2:]]
        return f"Files of {row.package} {' and of '.join(said)} exist."
    fitting = wheel_for(row.package, facts.torch)
    return f"For torch {facts.torch} that is {row.package} {fitting.version}." if fitting else None


def _span(torch: tuple[str, ...]) -> str:
    return torch[0] if len(torch) == 1 else f"{torch[0]} to {torch[-1]}"


def _command(row: ExtensionHome, facts: Facts) -> str | None:
    fitting = wheel_for(row.package, facts.torch) if facts.torch else None
    listed = row.lists(facts.torch, facts.variant) if facts.torch and facts.variant else None
    if facts.os == "windows" and not row.compiles_on_windows:
        return None
    if listed:
        return f"{_REINSTALL} {row.package} {listed}"
    if fitting is not None:
        return f"{_REINSTALL} --no-build-isolation {row.package}=={fitting.version}"
    if not row.from_source or files(row.package):
        return None  # `rekindle extension find` names the file, which beats hours of compiling
    if distribution(row.modules[0]):
        return f"{_REINSTALL} --no-build-isolation {row.package}"
    return f"{_REINSTALL} --no-build-isolation git+{row.repository}" if row.repository else None


def _abi(said: str, facts: Facts) -> dict[str, str]:
    """The symbol tells the C++ ABI of the extension: `__cxx11` is in every name with a string of the new one."""
    if "undefined symbol" not in said or facts.os == "windows":
        return {}
    new, old = "__cxx11" in said, "RKSs" in said
    if not new and not old:
        return {}
    word, other = ("TRUE", "FALSE") if new else ("FALSE", "TRUE")
    # Then torch has the same one, and it is the release that differs.
    if facts.torch and official_abi(Version(facts.torch), None) == ABIS[word]:
        return {}
    return {"built_abi": f"cxx11abi{word}", "other_abi": f"cxx11abi{other}"}
