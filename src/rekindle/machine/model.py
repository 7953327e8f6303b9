"""`Machine`: what one computer has, as plain values.

What is true of the world (which CUDA a card needs, what a driver runs) is in `knowledge/`; here is only what was found.
Unknown is None, never a guess. Paths are strings because a snapshot of a Windows machine is read on Linux and back.
"""

from __future__ import annotations

import ntpath
import posixpath
from types import ModuleType

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.gpu import drivers
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.model.card import Capability, Target
from rekindle.model.driver import Driver
from rekindle.model.host_compiler import HostCompiler
from rekindle.model.toolkit import FoundToolkit
from rekindle.model.torch_pin import TorchPin


class FoundGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One NVIDIA card. `sources` saw it (nvml, cuda, nvidia-smi, pci); `clashes` is what they disagree on."""

    name: str | None = None
    pci_id: str | None = None
    """Vendor and device, `10de:1024`."""
    bus: str | None = None
    """Where it sits, `0000:02:00.0`."""
    capability: Capability | None = None
    capability_from: str | None = None
    """Who said so: `nvml`, `cuda`, `nvidia-smi`, `pci`, `name`."""
    candidates: tuple[Capability, ...] = ()
    """The capabilities it may have when the name stands for several chips and nothing decides."""
    memory: int | None = None
    """In bytes."""
    driver_model: str | None = None
    """`WDDM`, `TCC` or `MCDM` on Windows."""
    problem: int | None = None
    """Windows' device problem code: 0 is none, 12 and 43 are the ones people meet."""
    sources: tuple[str, ...] = ()
    clashes: tuple[str, ...] = ()


class FoundDriver(msgspec.Struct, frozen=True, kw_only=True):
    version: Version | None = None
    """As the branch is named on this system: `472.50` on Windows, `470.57.02` on Linux."""
    cuda: Version | None = None
    """The highest CUDA this driver runs fully: what nvidia-smi prints, which is not the toolkit."""
    sources: tuple[str, ...] = ()
    clashes: tuple[str, ...] = ()
    kernel_module: str | None = None
    """Linux: `nvidia`, `nouveau`, or whatever holds the card."""

    @property
    def branch(self) -> int | None:
        return drivers.branch_of(self.version) if self.version else None

    @property
    def counted(self) -> Version | None:
        """As it is judged: only Linux on a Jetson reports a bare branch."""
        return drivers.meant(self.version, "linux") if self.version else None


class FoundCudnn(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    version: Version | None = None
    header: str | None = None
    libraries: tuple[str, ...] = ()
    folder: str | None = None
    """Where they lie."""
    missing: tuple[str, ...] = ()
    """Parts of a whole cuDNN of this version that are not there: a partial copy."""
    targets: tuple[Target, ...] = ()
    """GPU code read from its files; empty when it was not read."""
    found_by: tuple[str, ...] = ()


class FoundToolset(msgspec.Struct, frozen=True, kw_only=True):
    """One MSVC toolset, side by side with others in a Visual Studio."""

    version: Version
    """The folder's name, `14.29.30133`; `-vcvars_ver` takes its first two parts."""
    root: str
    studio: str
    """The Visual Studio's folder."""
    x64: bool = True
    """It holds the native 64-bit compiler."""

    @property
    def host(self) -> HostCompiler:
        return HostCompiler("msvc", self.version)


class FoundStudio(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """`Visual Studio Community 2019`."""
    version: Version | None = None
    root: str
    complete: bool | None = None
    toolsets: tuple[FoundToolset, ...] = ()


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell that asks has loaded."""

    host: str | None = None
    target: str | None = None
    toolset: Version | None = None
    cl: tuple[str, ...] = ()
    """Every `cl` on PATH, the one that wins first."""
    cl_version: Version | None = None
    cl_target: str | None = None
    link: tuple[str, ...] = ()


class FoundCompiler(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """`gcc` or `clang`."""
    path: str
    version: Version
    default: bool = False
    """It is what a plain `gcc` / `clang` gives."""
    also: tuple[str, ...] = ()
    """Its other names: `g++` is often a link to `g++-12`."""

    @property
    def host(self) -> HostCompiler:
        return HostCompiler(self.kind, self.version)


class FoundIntel(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    version: Version | None = None
    kind: str = "mkl"
    found_by: tuple[str, ...] = ()


class FoundOpenblas(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    found_by: str
    usual: bool = False
    """CMake looks there by itself; otherwise the build says where it is."""


class FoundPython(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    version: Version | None = None
    tag: str | None = None
    """`cp311`."""
    bits: int | None = None
    kind: str = "system"
    """`system`, `venv`, `conda`, `embedded`."""
    prefix: str | None = None
    base_prefix: str | None = None
    site_packages: tuple[str, ...] = ()
    packages: dict[str, str] = {}
    """The versions of the packages that matter to a build."""
    trouble: str | None = None

    @property
    def minor(self) -> str | None:
        """`3.11`; `3.13t` of a free-threaded one."""
        free = "t" if (self.tag or "").endswith("t") else ""
        return f"{self.version.major_minor}{free}" if self.version else None


class InstalledTorch(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    """As torch spells it: `2.7.1+cu126`."""
    cuda: Version | None = None
    """None: a CPU build."""
    root: str

    @property
    def pin(self) -> TorchPin:
        return TorchPin.parse(self.version)


class FoundTorch(InstalledTorch, frozen=True, kw_only=True):
    code: tuple[GpuCode, ...] = ()
    """The GPU code of its libraries; empty for a CPU build or when it could not be read."""
    targets: tuple[Target, ...] = ()
    """What that code was compiled for."""
    partial: tuple[Target, ...] = ()
    """Targets that only some of its GPU containers hold."""
    python: str | None = None
    """The interpreter it is installed for."""


class Environments(msgspec.Struct, frozen=True, kw_only=True):
    """The Pythons, the target first, and what was found among the target's packages."""

    pythons: tuple[FoundPython, ...] = ()
    torch: FoundTorch | None = None
    cudnns: tuple[FoundCudnn, ...] = ()
    toolkits: tuple[FoundToolkit, ...] = ()

    @property
    def target(self) -> FoundPython | None:
        return self.pythons[0] if self.pythons else None


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """git, cmake, ninja, …: the one that wins, and the others behind it."""

    name: str
    path: str
    version: Version | None = None
    others: tuple[str, ...] = ()


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """In bytes. `limit` is what a container may use; `commit` what Windows promises in total (RAM and page file)."""

    physical: int | None = None
    available: int | None = None
    swap: int | None = None
    commit: int | None = None
    limit: int | None = None

    @property
    def usable(self) -> int | None:
        """The most a build may use: the container's limit where there is one."""
        known = [size for size in (self.physical, self.limit) if size is not None]
        return min(known) if known else None


class Processor(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    cores: int | None = None
    """Those that may be used, which a container or an affinity mask can make fewer than there are."""
    physical: int | None = None
    """Real cores, without their second threads."""
    flags: tuple[str, ...] = ()
    """Of `sse4.1`, `avx`, `avx2`, `avx512`; or `neon`, `sve` on ARM."""
    flags_known: bool = False


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    """`here`, `temp`, `home`."""
    path: str
    total: int | None = None
    free: int | None = None
    dev_drive: bool | None = None
    """A volume of Windows 11 made for builds; None where Windows does not say."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is neither hardware nor toolchain and still breaks builds."""

    release: str | None = None
    """`Windows-10-10.0.19045`, `Debian GNU/Linux 12 (bookworm)`."""
    glibc: Version | None = None
    libc: str | None = None
    """`glibc` or `musl`; None where it is not known."""
    l4t: int | None = None
    """The major release of L4T on a Jetson: `36` belongs to JetPack 6."""
    distribution: str | None = None
    """`ubuntu`, `debian`, `fedora`, `arch`, `nixos`, `suse`: the family whose packages it takes."""
    wsl: str | None = None
    """`1` or `2` inside WSL."""
    container: bool = False
    long_paths: bool | None = None
    git_long_paths: bool | None = None
    console_encoding: str | None = None
    console_code_page: int | None = None
    utf8_mode: bool | None = None
    defender_exclusions: tuple[str, ...] | None = None
    """None when they may not be read, which is usual without administrator rights."""
    visual_runtime: tuple[str, ...] | None = None
    """Windows: those of the Visual C++ Redistributable's libraries that some torch imports and System32 has."""
    here: str | None = None
    home: str | None = None
    temp: str | None = None


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A probe that gave no answer, and why."""

    probe: str
    reason: str


PARTS = ("toolkits", "studios", "programs", "intel")
"""Of each a check says by itself that it is not known."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    os: str
    """`windows` or `linux`."""
    arch: str
    """`x86_64` or `aarch64`, whatever the system calls it."""
    gpus: tuple[FoundGpu, ...] = ()
    driver: FoundDriver | None = None
    toolkits: tuple[FoundToolkit, ...] = ()
    """The one that wins on PATH first."""
    cudnns: tuple[FoundCudnn, ...] = ()
    studios: tuple[FoundStudio, ...] = ()
    sdks: tuple[Version, ...] = ()
    """Windows SDKs."""
    prompt: Prompt = Prompt()
    compilers: tuple[FoundCompiler, ...] = ()
    intel: tuple[FoundIntel, ...] = ()
    openblas: tuple[FoundOpenblas, ...] = ()
    """The one that a build takes first."""
    python: FoundPython | None = None
    """The target: the environment that is active, else the first on PATH, else the one that runs Rekindle."""
    pythons: tuple[FoundPython, ...] = ()
    """All that were met, the target first."""
    python_on_path: str | None = None
    """What the bare word `python` starts."""
    torch: FoundTorch | None = None
    programs: tuple[Program, ...] = ()
    memory: Memory = Memory()
    processor: Processor = Processor()
    disks: tuple[Disk, ...] = ()
    surroundings: Surroundings = Surroundings()
    environment: dict[str, str] = {}
    """The variables that matter to a build."""
    stale: tuple[str, ...] = ()
    """Those of them that name a program or folder which does not exist."""
    unread: tuple[Unread, ...] = ()

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """The distinct capabilities of the cards, lowest first; cards of unknown capability are not in it."""
        return tuple(sorted({gpu.capability for gpu in self.gpus if gpu.capability}))

    @property
    def toolsets(self) -> tuple[FoundToolset, ...]:
        """All MSVC toolsets, newest first."""
        every = [toolset for studio in self.studios for toolset in studio.toolsets]
        return tuple(sorted(every, key=lambda toolset: toolset.version, reverse=True))

    @property
    def toolkit(self) -> FoundToolkit | None:
        """The toolkit whose nvcc wins on PATH, else None."""
        return next((toolkit for toolkit in self.toolkits if "PATH" in toolkit.found_by), None)

    @property
    def paths(self) -> ModuleType:
        """How it spells paths."""
        return ntpath if self.os == "windows" else posixpath

    @property
    def driver_system(self) -> str:
        """By whose numbers the driver counts: inside WSL it is the Windows one."""
        return "windows" if self.surroundings.wsl else self.os

    @property
    def driven_by(self) -> Driver | None:
        version = self.driver.counted if self.driver else None
        return Driver(version, self.driver_system) if version else None

    def program(self, name: str) -> Program | None:
        return next((program for program in self.programs if program.name == name), None)

    def could_not_read(self, probe: str) -> str | None:
        return next((unread.reason for unread in self.unread if unread.probe == probe), None)
