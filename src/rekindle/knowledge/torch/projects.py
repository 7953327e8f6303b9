"""Projects that build or mend PyTorch for old cards, and container images with an official build."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rekindle.core.untrusted import PipRequirement, PipVersion, ProjectName
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.tables import NamedRow, Row, rows
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.model.card import Capability, Target
from rekindle.model.torch_pin import TorchPin


class CommunityProject(NamedRow, frozen=True, kw_only=True):
    """Somebody else's work. Empty lists: not known."""

    link: str
    offers: str
    capabilities: tuple[Capability, ...]
    systems: tuple[str, ...]
    cuda: tuple[str, ...]
    pythons: tuple[str, ...]
    needs: tuple[str, ...]
    last_seen: str
    trust: str
    cpu_level: str | None = None
    brings: tuple[str, ...] = ()
    """What the card can do with it and not without, in the words of `--needs`."""


class ContainerImage(Row, frozen=True, kw_only=True):
    """An image by its tag. With a `variant` it holds the official line of torch; without one, a build of NVIDIA's own,
    of which only the CUDA, the oldest card and perhaps the torch it began from are published."""

    tag: str
    cuda: Version
    torch: str | None = None
    variant: str | None = None
    oldest: Capability | None = None

    @property
    def label(self) -> str:
        known = TorchPin(self.torch or "", self.variant).spoken
        return f"the official {known}" if self.variant else f"NVIDIA's own {known}, CUDA {self.cuda}"


class ImagePython(Row, frozen=True, kw_only=True):
    first: Version
    last: Version
    python: str


_image_python = rows("projects.toml", "image_python", ImagePython)


def image_python(torch: str) -> str | None:
    """The Python of PyTorch's own image of a release, where that is known."""
    minor = Version(torch).major_minor
    return next((row.python for row in _image_python() if row.first <= minor <= row.last), None)


_project = rows("projects.toml", "project", CommunityProject)
images = rows("projects.toml", "image", ContainerImage)


class OtherBuilds(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle knowledge projects`."""

    schema: str = "rekindle.projects/1"
    projects: tuple[CommunityProject, ...]
    images: tuple[ContainerImage, ...]


def projects(card: Capability | None = None) -> tuple[CommunityProject, ...]:
    """Those for a card, or all of them."""
    return tuple(row for row in _project() if card is None or card in row.capabilities)


def bringing(need: str, cards: Iterable[Capability], system: str) -> tuple[CommunityProject, ...]:
    """Other people's work with which all these cards can do what is needed."""
    wanted = set(cards)
    fitting = (row for row in _project() if need in row.brings and system in row.systems)
    return tuple(row for row in fitting if wanted <= {*row.capabilities})


class CondaBuild(Row, frozen=True, kw_only=True):
    """One build of the recipe. `cudnn` is what it pins (`9`, `9.10`); conda chooses within that when it installs."""

    torch: PipVersion
    system: str
    machine: str
    cuda: Version
    arch_list: str
    pythons: tuple[str, ...]
    glibc: Version | None = None
    cudnn: str | None = None

    @property
    def targets(self) -> tuple[Target, ...]:
        return parse_arch_list(self.arch_list)


conda_builds = rows("conda_forge.json", "builds", CondaBuild)


class CondaExtension(Row, frozen=True, kw_only=True):
    """A package that conda-forge builds on its own PyTorch. No `pythons`: one file serves all; `arch_list` None: it is
    not said which cards it is compiled for."""

    package: ProjectName
    name: ProjectName
    """What conda calls it."""
    version: PipVersion
    system: str
    machine: str
    torch: tuple[Version, ...]
    cuda: tuple[Version, ...]
    pythons: tuple[str, ...] = ()
    arch_list: str | None = None

    def beside(self, torch: str, cuda: Version) -> bool:
        """Is it built for this PyTorch of conda-forge's?"""
        return Version(torch).major_minor in {each.major_minor for each in self.torch} and cuda in self.cuda

    def serves(self, card: Capability) -> bool:
        targets = parse_arch_list(self.arch_list or "")
        return not targets or any(runs(target, card) is not Runs.NO for target in targets)


conda_extensions = rows("conda_extensions.json", "packages", CondaExtension)


class CommunityWheel(NamedRow, frozen=True, kw_only=True):
    """`sha256` None: the file has not been opened by us."""

    builder: str
    page: str
    link: str | None = None
    """Where the file itself is."""
    torch: str
    python: str
    system: str
    cuda: Version
    targets: tuple[Target, ...]
    blas: str | None = None
    cpu_floor: str | None = None
    sha256: str | None = None
    cudnn: Version | None = None
    """What it was built with; its DLLs are not in the wheel."""
    mkl: tuple[PipRequirement, ...] = ()
    """As pip installs it: the wheel loads MKL's and OpenMP's DLLs and does not bring them."""
    numpy: PipRequirement | None = None
    note: str | None = None


community_wheels = rows("community_wheels.toml", "wheels", CommunityWheel)
