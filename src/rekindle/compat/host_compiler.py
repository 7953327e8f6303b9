"""Does this CUDA take this host compiler? nvcc has a gate of its own, and Microsoft's STL has another."""

from __future__ import annotations

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.command import Command
from rekindle.core.version import Version
from rekindle.knowledge.cuda.host_compilers import c_library_limits, host_limits, msc_ver_of, stl_gate, toolsets
from rekindle.knowledge.tables import Evidence, cached
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.model.host_compiler import HostCompiler, msvc

_OLDEST_GCC = 5


@cached
def takes_compiler(cuda: Version, compiler: HostCompiler) -> Judgement:
    if compiler.kind == "msvc":
        # Both gates: the toolset is refused if either refuses it; the STL's is known also where nvcc's is not.
        gates = _nvcc_gate(cuda, compiler.version), _stl_gate(cuda, compiler.version)
        return next((each for each in gates if isinstance(each, Clash)), gates[0])
    return (_takes_gcc if compiler.kind == "gcc" else _takes_clang)(cuda, compiler.version.major)


def _takes_gcc(cuda: Version, major: int) -> Judgement:
    limits = host_limits(cuda)
    if limits is None or limits.gcc_max is None:
        return Unknown(missing=f"the limits of CUDA {cuda} for GCC are not in the tables")
    if major <= limits.gcc_max:
        return Fits()
    change = Alternative(what="compiler", value=str(limits.gcc_max), text=f"use GCC {limits.gcc_max} or older")
    sentence = f"CUDA {cuda} takes GCC up to {limits.gcc_max}; GCC {major} is refused"
    return Clash(sentence=sentence, source=limits.source, changes=(change,))


def _takes_clang(cuda: Version, major: int) -> Judgement:
    limits = host_limits(cuda)
    if limits is None or limits.clang_below is None:
        return Unknown(missing=f"the limits of CUDA {cuda} for clang are not in the tables")
    if major < limits.clang_below and (limits.clang_min is None or major >= limits.clang_min.major):
        return Fits()
    sentence = f"CUDA {cuda} takes clang below {limits.clang_below}; clang {major} is refused"
    return Clash(sentence=sentence, source=limits.source)


def builds_torch(torch: str | None, major: int) -> Judgement:
    """Does this GCC compile PyTorch and what is built on it? None: any release of the tables."""
    need = min((row.min_gcc for row in torch_releases() if torch is None or torch in row.patches), default=None)
    if need is None or major >= need.major:
        return Fits() if need else Unknown(missing=f"which GCC torch {torch} needs")
    change = Alternative(what="compiler", value=str(need), text=f"use GCC {need} or newer")
    sentence = f"torch {torch or ''}".strip() + f" needs gcc {need} or newer, not gcc {major}"
    return Clash(sentence=sentence, source="README and CMakeLists.txt of the release", changes=(change,))


def compiles_with(cuda: Version, glibc: Version | None) -> Judgement:
    """With the headers of this C library?"""
    if glibc is None:
        return Unknown(missing="which glibc the system has is not known")
    broken = next((row for row in c_library_limits() if glibc >= row.glibc and cuda < row.cuda_before), None)
    if broken is None:
        return Fits()
    least = broken.cuda_before
    change = Alternative(what="toolkit", value=str(least), text=f"use CUDA {least} or newer")
    sentence = f"CUDA {cuda} does not compile with the headers of glibc {glibc}: {broken.why}"
    return Clash(sentence=sentence, source=broken.source, changes=(change,))


def newest_gcc(cuda: Version) -> int | None:
    """The newest GCC that this CUDA takes. None: its limits are not in the tables."""
    limits = host_limits(cuda)
    return limits.gcc_max if limits else None


def gcc_majors(cuda: Version) -> tuple[int, ...]:
    """The GCCs that this CUDA takes, the newest first."""
    return tuple(range(newest_gcc(cuda) or 0, _OLDEST_GCC - 1, -1))


def limits_evidence(cuda: Version) -> Evidence:
    """How it is known what this CUDA takes."""
    limits = host_limits(cuda)
    return limits.evidence if limits else Evidence.NOTES


def toolsets_of(studio: str | None) -> tuple[Version, ...]:
    """The toolsets of a Visual Studio by its year or its number (`17.9`); of all of them without one."""
    return tuple(row.toolset for row in toolsets() if studio in (None, row.visual_studio, row.release))


def toolset_of_compiler(cl: Version) -> Version:
    """The toolset of a `cl` version: 19.29.30133 belongs to 14.29."""
    return Version(f"{cl.major - 5}.{cl.minor}")


@cached
def toolset_range(cuda: Version) -> tuple[Version, Version] | None:
    """The oldest and newest toolset that pass both gates; None when not known."""
    fitting = [row.toolset for row in toolsets() if isinstance(takes_compiler(cuda, msvc(row.toolset)), Fits)]
    return (min(fitting), max(fitting)) if fitting else None


def _nvcc_gate(cuda: Version, toolset: Version) -> Judgement:
    limits = host_limits(cuda)
    if limits is None or limits.msc_ver_min is None or limits.msc_ver_below is None:
        return Unknown(missing=f"the MSVC range of CUDA {cuda} is not in the tables")
    first, last = limits.msc_ver_min - 1900, limits.msc_ver_below - 1901
    if limits.msc_ver_min <= msc_ver_of(toolset) < limits.msc_ver_below:
        return Fits()
    allowed = f"CUDA {cuda} takes MSVC toolsets 14.{first} to 14.{last}"
    change = Alternative(what="compiler", value=f"14.{last}", text=f"use toolset 14.{last} or older")
    sentence = f"{allowed}; {toolset} (MSVC 19.{toolset.minor}) is refused by nvcc"
    return Clash(sentence=sentence, source=limits.source, changes=(change,))


def _stl_gate(cuda: Version, toolset: Version) -> Judgement:
    gate = stl_gate(toolset)
    if gate is None or gate.min_cuda is None or cuda.major_minor >= gate.min_cuda:
        return Fits()
    change = Alternative(what="toolkit", value=str(gate.min_cuda), text=f"use CUDA {gate.min_cuda} or newer")
    sentence = f"the STL of toolset {toolset} wants CUDA {gate.min_cuda} or newer (error STL1002); CUDA {cuda} is older"
    return Clash(sentence=sentence, source=gate.source, changes=(change,))


def packaged_gcc(version: int, distribution: str | None) -> tuple[Command, ...]:
    """How a system installs it beside its own; nothing where its packages do not have it. None: nobody told."""
    if distribution not in (None, "ubuntu", "debian"):
        return ()
    return (Command("sudo", "apt-get", "install", f"g++-{version}", system="linux"),)
