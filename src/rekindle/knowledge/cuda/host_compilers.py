"""Host compilers: what nvcc accepts, the STL's own gate, and Visual Studio ↔ toolset ↔ `_MSC_VER`.

CUDA has two MSVC gates. nvcc's `crt/host_config.h` refuses an `_MSC_VER` out of its range
(`-allow-unsupported-compiler` passes it); the STL's `yvals_core.h` refuses a CUDA that is too old for it with STL1002
(`-D_ALLOW_COMPILER_AND_STL_VERSION_MISMATCH` passes that one, nvcc's switch does not).
"""

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided, observed

_OLDEST_GCC = 5


class HostLimits(Row, frozen=True, kw_only=True):
    """What one toolkit's `host_config.h` accepts. None: its header has not been seen."""

    cuda: Version
    msc_ver_min: int | None
    msc_ver_below: int | None
    gcc_max: int | None
    clang_min: Version | None
    clang_below: int | None
    packages: tuple[str, ...] = ()
    note: str | None = None


class Toolset(Row, frozen=True, kw_only=True):
    """An MSVC toolset: `14.39` is `_MSC_VER` 1939 and came with Visual Studio 2022 17.9."""

    toolset: Version
    msc_ver: int
    visual_studio: str
    release: str | None


class StlGate(Row, frozen=True, kw_only=True):
    """The oldest CUDA that the STL of these toolsets lets through. None: no gate."""

    first_toolset: Version
    last_toolset: Version
    min_cuda: Version | None


class LibraryLimit(Row, frozen=True, kw_only=True):
    """From `glibc` on, CUDA before `cuda_before` does not compile against the headers of the C library."""

    glibc: Version
    cuda_before: Version
    why: str


def c_library_limit(glibc: Version | None, cuda: Version) -> LibraryLimit | None:
    """The limit that this pair breaks; None when it breaks none, or when the system's glibc is not known."""
    if glibc is None:
        return None
    limits = decided("c_libraries", dict[str, tuple[LibraryLimit, ...]])["limit"]
    return next((row for row in limits if glibc >= row.glibc and cuda < row.cuda_before), None)


class _Tables(msgspec.Struct, frozen=True):
    cuda: tuple[HostLimits, ...]
    toolsets: tuple[Toolset, ...]
    stl: tuple[StlGate, ...]


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Does this CUDA take this compiler? `accepted` None: the tables cannot tell."""

    accepted: bool | None
    reason: str
    source: str


@cached
def _tables() -> _Tables:
    return observed("host_compilers", _Tables)


@cached
def host_limits(cuda: Version) -> HostLimits | None:
    return next((row for row in _tables().cuda if row.cuda == cuda.major_minor), None)


def toolsets() -> tuple[Toolset, ...]:
    return _tables().toolsets


def toolset_of(version: Version) -> Toolset | None:
    """The row of a toolset by its version (`14.39` or `14.39.33519`)."""
    return next((row for row in toolsets() if row.toolset == version.major_minor), None)


def msc_ver_of(toolset: Version) -> int:
    """`_MSC_VER` follows the toolset's number (14.39 is 1939), also for one newer than the tables."""
    row = toolset_of(toolset)
    return row.msc_ver if row else 1900 + toolset.minor


def toolset_of_compiler(cl: Version) -> Version:
    """The toolset of a `cl` version: 19.29.30133 belongs to 14.29."""
    return Version(f"{cl.major - 5}.{cl.minor}")


def accepts_msvc(cuda: Version, toolset: Version) -> Acceptance:
    """Both gates. The toolset is refused if either refuses it."""
    by_nvcc = _nvcc_gate(cuda, toolset)
    if by_nvcc.accepted is False:
        return by_nvcc
    # The STL's gate is known also where nvcc's is not: it can still refuse, but not accept for both.
    by_stl = _stl_gate(cuda, toolset)
    return by_nvcc if by_nvcc.accepted is None and by_stl.accepted else by_stl


def accepts_gcc(cuda: Version, major: int) -> Acceptance:
    limits = host_limits(cuda)
    if limits is None or limits.gcc_max is None:
        return Acceptance(accepted=None, reason=f"the limits of CUDA {cuda} for GCC are not in the tables", source="")
    if major > limits.gcc_max:
        reason = f"CUDA {cuda} takes GCC up to {limits.gcc_max}; GCC {major} is refused"
        return Acceptance(accepted=False, reason=reason, source=limits.source)
    return Acceptance(accepted=True, reason=f"CUDA {cuda} takes GCC up to {limits.gcc_max}", source=limits.source)


def gcc_majors(cuda: Version) -> tuple[int, ...]:
    """The GCCs that this CUDA takes, the newest first. None: its limits are not in the tables."""
    limits = host_limits(cuda)
    return tuple(range(limits.gcc_max, _OLDEST_GCC - 1, -1)) if limits and limits.gcc_max else ()


def accepts_clang(cuda: Version, major: int) -> Acceptance:
    limits = host_limits(cuda)
    if limits is None or limits.clang_below is None:
        return Acceptance(accepted=None, reason=f"the limits of CUDA {cuda} for clang are not in the tables", source="")
    accepted = major < limits.clang_below and (limits.clang_min is None or major >= limits.clang_min.major)
    return Acceptance(
        accepted=accepted, reason=f"CUDA {cuda} takes clang below {limits.clang_below}", source=limits.source
    )


@cached
def toolset_range(cuda: Version) -> tuple[Version, Version] | None:
    """The oldest and newest toolset that pass both gates; None when not known."""
    fitting = [row.toolset for row in toolsets() if accepts_msvc(cuda, row.toolset).accepted]
    return (min(fitting), max(fitting)) if fitting else None


def _nvcc_gate(cuda: Version, toolset: Version) -> Acceptance:
    limits = host_limits(cuda)
    if limits is None or limits.msc_ver_min is None or limits.msc_ver_below is None:
        reason = f"the MSVC range of CUDA {cuda} is not in the tables"
        return Acceptance(accepted=None, reason=reason, source=limits.source if limits else "")
    number = msc_ver_of(toolset)
    first, last = limits.msc_ver_min - 1900, limits.msc_ver_below - 1901
    allowed = f"CUDA {cuda} takes MSVC toolsets 14.{first} to 14.{last}"
    if not limits.msc_ver_min <= number < limits.msc_ver_below:
        reason = f"{allowed}; {toolset} (MSVC 19.{toolset.minor}) is refused by nvcc"
        return Acceptance(accepted=False, reason=reason, source=limits.source)
    return Acceptance(accepted=True, reason=allowed, source=limits.source)


def _stl_gate(cuda: Version, toolset: Version) -> Acceptance:
    short = toolset.major_minor
    gate = next((row for row in _tables().stl if row.first_toolset <= short <= row.last_toolset), None)
    if gate and gate.min_cuda and cuda.major_minor < gate.min_cuda:
        reason = (
            f"the STL of toolset {toolset} wants CUDA {gate.min_cuda} or newer (error STL1002); CUDA {cuda} is older"
        )
        return Acceptance(accepted=False, reason=reason, source=gate.source)
    source = gate.source if gate else ""
    return Acceptance(accepted=True, reason=f"toolset {toolset} passes both gates of CUDA {cuda}", source=source)
