"""Host compilers: what nvcc accepts, the STL's own gate, and Visual Studio ↔ toolset ↔ `_MSC_VER`.

CUDA has two MSVC gates. nvcc's `crt/host_config.h` refuses an `_MSC_VER` out of its range
(`-allow-unsupported-compiler` passes it); the STL's `yvals_core.h` refuses a CUDA that is too old for it with STL1002
(`-D_ALLOW_COMPILER_AND_STL_VERSION_MISMATCH` passes that one, nvcc's switch does not).
"""

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided, rows


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


@cached
def c_library_limits() -> tuple[LibraryLimit, ...]:
    return decided("c_libraries", dict[str, tuple[LibraryLimit, ...]])["limit"]


_cuda = rows("host_compilers.json", "cuda", HostLimits)
toolsets = rows("host_compilers.json", "toolsets", Toolset)
_stl = rows("host_compilers.json", "stl", StlGate)


@cached
def host_limits(cuda: Version) -> HostLimits | None:
    return next((row for row in _cuda() if row.cuda == cuda.major_minor), None)


@cached
def toolset_of(version: Version) -> Toolset | None:
    """The row of a toolset by its version (`14.39` or `14.39.33519`)."""
    return next((row for row in toolsets() if row.toolset == version.major_minor), None)


def msc_ver_of(toolset: Version) -> int:
    """`_MSC_VER` follows the toolset's number (14.39 is 1939), also for one newer than the tables."""
    row = toolset_of(toolset)
    return row.msc_ver if row else 1900 + toolset.minor


def stl_gate(toolset: Version) -> StlGate | None:
    """Which CUDA the STL of a toolset asks for."""
    short = toolset.major_minor
    return next((row for row in _stl() if row.first_toolset <= short <= row.last_toolset), None)
