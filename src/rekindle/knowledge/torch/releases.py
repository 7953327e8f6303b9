"""PyTorch releases: Pythons, what each needs to build, the official CUDA wheels and the architectures in them.

What upstream compiles a release with is the better-tested choice: a newer toolkit that the build files merely admit
comes after it.
"""

from functools import lru_cache

import msgspec

from rekindle.core.errors import UnknownName
from rekindle.core.untrusted import LocalLabel
from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided, observed, rows
from rekindle.knowledge.torch.torch_wheels import old_wheels
from rekindle.knowledge.torch.wheel_platforms import old_lines
from rekindle.model.card import Capability, Target
from rekindle.model.torch_pin import TorchPin


class Variant(Row, frozen=True, kw_only=True):
    """An official wheel line of one minor release: `cu126` with its cuDNN and architectures on each system."""

    name: LocalLabel
    cuda: Version
    cudnn: Version | None
    experimental: bool
    arch_list_linux: str | None
    arch_list_windows: str | None
    index_default_linux: bool = False

    def arch_list(self, system: str) -> str | None:
        return self.arch_list_windows if system == "windows" else self.arch_list_linux

    def targets(self, system: str) -> tuple[Target, ...] | None:
        text = self.arch_list(system)
        return None if text is None else parse_arch_list(text)


class TorchRelease(Row, frozen=True, kw_only=True):
    """A minor release (`2.7`) with its patch releases and everything that holds for all of them."""

    minor: str
    patches: dict[str, str]
    pythons_windows: tuple[str, ...]
    pythons_linux: tuple[str, ...]
    free_threaded: dict[str, tuple[str, ...]]
    """The free-threaded Pythons (`3.13t`) that a patch release has wheels for, on every system."""
    requires_python: str
    variants: tuple[Variant, ...]
    min_cmake: Version
    min_cuda: Version
    min_cudnn: Version
    min_gcc: Version
    min_python: Version
    cxx_standard: int
    setuptools: str
    official_linker: Version
    backend: str
    numpy2_linux_from: Version | None
    numpy2_windows_from: Version | None
    cmake4_unpatched: bool
    commits: dict[str, str] = msgspec.field(default_factory=dict)
    """Of each patch release the commit of its tag; where no tag was seen, the one that its wheel was built from."""
    warning: str | None = None
    uncertain: tuple[str, ...] = ()

    @property
    def newest(self) -> str:
        """The last patch release: `2.7.1` of 2.7."""
        return max(self.patches, key=Version.parse)

    def pythons(self, system: str) -> tuple[str, ...]:
        return self.pythons_windows if system == "windows" else self.pythons_linux

    def wheels_for(self, torch: str, system: str) -> tuple[str, ...]:
        """The Pythons that a patch release has wheels for, free-threaded ones too."""
        return (*self.pythons(system), *self.free_threaded.get(torch, ()))

    def numpy2_from(self, system: str) -> Version | None:
        return self.numpy2_windows_from if system == "windows" else self.numpy2_linux_from

    def variant(self, name: str) -> Variant | None:
        return next((variant for variant in self.variants if variant.name == name), None)


@cached
def torch_releases() -> tuple[TorchRelease, ...]:
    rows = observed("torch_releases", dict[str, tuple[TorchRelease, ...]])["releases"]
    return tuple(sorted(rows, key=lambda row: Version.parse(row.minor)))


@cached
def torch_release(version: str) -> TorchRelease:
    """The release of a version as a person writes it: `2.7`, `2.7.1`, `2.7.1+cu118`, `v2.7.1`."""
    plain = TorchPin.parse(version).release
    try:
        wanted = Version(plain)
    except ValueError:
        raise UnknownName(f"`{version[:40]}` is not a PyTorch version", hint="write it like `2.7.1`") from None
    row = next((row for row in torch_releases() if Version.parse(row.minor) == wanted.major_minor), None)
    newest = torch_releases()[-1]
    if row is None:
        if wanted > Version(newest.newest):
            message = f"PyTorch {plain} is newer than Rekindle's data (latest: {newest.newest})"
            hint = f"`--torch {newest.newest}`, or leave it out; `rekindle knowledge` says how old the data is"
            raise UnknownName(message, hint=hint)
        near = [each for each in early() if Version(each).major_minor == wanted.major_minor]
        if plain in near:
            systems = sorted({"linux", *(row.system for row in old_lines() if row.torch == plain)})
            message = f"of PyTorch {plain} wheels for {' and '.join(map(str.capitalize, systems))} alone are known"
            page = "https://pytorch.org/get-started/previous-versions/ names its others"
            raise UnknownName(message, hint=f"`rekindle plan --torch {plain} --os linux` plans it; {page}")
        if near:
            message = f"PyTorch {plain} is not in Rekindle's data; of {wanted.major_minor} it has {' and '.join(near)}"
            raise UnknownName(message, hint=f"ask for its neighbour: `--torch {near[-1]}`")
        known = f"{torch_releases()[0].minor} to {newest.minor}; of earlier ones wheels of {', '.join(early())}"
        message = f"PyTorch {plain} is older than Rekindle's data ({known})"
        raise UnknownName(message, hint="`rekindle gpu NAME` says what Linux wheels before 1.10 hold for a card")
    if len(wanted.parts) > 2 and plain not in row.patches:
        raise UnknownName(f"there is no PyTorch {plain}", hint=f"{row.minor} has " + ", ".join(row.patches))
    return row


def commit_of(torch: str) -> str | None:
    """The commit of a release, where the tables have it: a mirror's tag may be anything."""
    return next((row.commits[torch] for row in torch_releases() if torch in row.commits), None)


@cached
def patches() -> tuple[str, ...]:
    """Every release of the tables."""
    return tuple(patch for row in torch_releases() for patch in row.patches)


@cached
def oldest_cuda() -> Version:
    """Of all that the releases of the tables were built with."""
    return min(variant.cuda for row in torch_releases() for variant in row.variants)


@cached
def early() -> tuple[str, ...]:
    """Releases before those of the tables, of which only wheels are known."""
    return tuple(sorted({row.torch for row in old_lines()} | {row.version for row in old_wheels()}, key=Version))


@cached
def full_version(version: str) -> str:
    """`2.7` means its last patch release; `2.7.0` means itself."""
    plain = TorchPin.parse(version).release
    if plain in early():
        return plain
    row = torch_release(version)
    return plain if plain in row.patches else row.newest


@lru_cache(maxsize=256)
def parse_arch_list(text: str) -> tuple[Target, ...]:
    """`3.7+PTX;5.0` as targets: sm_37, compute_37, sm_50."""
    found: list[Target] = []
    for part in text.replace(",", ";").replace(" ", ";").split(";"):
        if not part:
            continue
        number, plus, _ = part.partition("+")
        suffix = number[-1] if number[-1] in "af" else ""
        capability = Capability.parse(number.rstrip("af"))
        found.append(Target(capability, suffix=suffix))
        if plus:
            found.append(Target(capability, ptx=True, suffix=suffix))
    return tuple(found)


class UpstreamBuild(Row, frozen=True, kw_only=True):
    """`purpose`: `wheel` for the published wheels, `test` for a build that upstream's tests compile and throw away."""

    minor: str
    cuda: Version
    purpose: str


@cached
def newest_python() -> Version:
    """The newest Python that any release has wheels for."""
    every = {word.rstrip("t") for row in torch_releases() for word in (*row.pythons_linux, *row.pythons_windows)}
    return max(Version(word) for word in every)


@cached
def _upstream() -> dict[str, tuple[UpstreamBuild, ...]]:
    found: dict[str, list[UpstreamBuild]] = {}
    for row in observed("upstream_builds", dict[str, tuple[UpstreamBuild, ...]])["builds"]:
        found.setdefault(row.minor, []).append(row)
    return {minor: tuple(sorted(rows, key=lambda row: row.cuda)) for minor, rows in found.items()}


def upstream_builds(torch: str) -> tuple[UpstreamBuild, ...]:
    """Oldest toolkit first; empty when the tables know nothing of this release."""
    return _upstream().get(str(Version.parse(TorchPin.parse(torch).release).major_minor), ())


@cached
def upstream_build(torch: str, cuda: Version) -> UpstreamBuild | None:
    """How upstream compiles this release with this toolkit; None: it is not known to."""
    rows = [row for row in upstream_builds(torch) if row.cuda == cuda.major_minor]
    return next((row for row in rows if row.purpose == "wheel"), rows[0] if rows else None)


class EarlyRelease(Row, frozen=True, kw_only=True):
    """Every release below `below`, and not below the row before it."""

    below: Version
    newest_cuda: Version


class EarlyLine(Row, frozen=True, kw_only=True):
    """The least that every build of these CUDAs has in releases below `below`, and not below the row before it."""

    below: Version
    cudas: tuple[Version, ...]
    arch_list: str


_early = rows("early_releases.toml", "release", EarlyRelease)
_early_lines = rows("early_releases.toml", "line", EarlyLine)


def early_line(torch: Version, cuda: Version) -> EarlyLine | None:
    found = [row for row in _early_lines() if torch < row.below and cuda in row.cudas]
    return min(found, key=lambda row: row.below, default=None)


@cached
def early_cudas() -> frozenset[Version]:
    """Those of the indexes that only early releases have."""
    return frozenset(cuda for row in _early_lines() for cuda in row.cudas)


def newest_cuda(torch: Version) -> Version | None:
    """The newest CUDA that an early release was published with; None for one that the tables have."""
    return next((row.newest_cuda for row in sorted(_early(), key=lambda row: row.below) if torch < row.below), None)


_RECENT = 8


class ArchitectureLists(Row, frozen=True, kw_only=True):
    """One release. `extension` are the numbers (`9.0a`) that an extension may ask for, each also with `+PTX`."""

    minor: str
    extension: tuple[str, ...]
    extension_names: dict[str, str]
    build_names: dict[str, str]

    def names(self, *, builds_torch: bool) -> dict[str, str]:
        return self.build_names if builds_torch else self.extension_names


@cached
def _rows() -> tuple[ArchitectureLists, ...]:
    rows = observed("architecture_lists", dict[str, tuple[ArchitectureLists, ...]])["releases"]
    return tuple(sorted(rows, key=lambda row: Version(row.minor)))


def taken_by(torch: Version | None) -> ArchitectureLists:
    """The row of a release; the newest one where no release is given or the table ends before it."""
    if torch is None:
        return _rows()[-1]
    older = [row for row in _rows() if Version(row.minor) <= torch.major_minor]
    return older[-1] if older else _rows()[0]


def first_taking(arch: str) -> str | None:
    """The first release whose extensions may ask for this number."""
    return next((row.minor for row in _rows() if arch in row.extension), None)


def meanings(name: str, *, builds_torch: bool) -> frozenset[str]:
    """What a name stands for in the newest releases; empty among them where one does not know it."""
    return frozenset(row.names(builds_torch=builds_torch).get(name, "") for row in _rows()[-_RECENT:])


def first_naming(name: str, *, builds_torch: bool) -> str | None:
    """The first release that knows this name."""
    return next((row.minor for row in _rows() if name in row.names(builds_torch=builds_torch)), None)


class TritonTarget(Row, frozen=True, kw_only=True):
    """The first Triton that makes code for an architecture, and the torch that brings it."""

    target: str
    triton: str
    torch: str


@cached
def first_triton(capability: Capability) -> TritonTarget | None:
    rows = decided("triton_targets", dict[str, tuple[TritonTarget, ...]])["row"]
    return next((row for row in rows if row.target == capability.sm), None)
