"""Projects that build or mend PyTorch for old cards, and container images with an official build."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import NamedRow, Row, rows


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
        known = f"torch {self.torch}" if self.torch else "torch"
        return f"the official {known}+{self.variant}" if self.variant else f"NVIDIA's own {known}, CUDA {self.cuda}"


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
