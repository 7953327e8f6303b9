"""What the build of an extension must be told, and where the source of torchvision and torchaudio is."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from packaging.utils import canonicalize_name

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Target
from rekindle.knowledge.tables import Row, cached, decided


class Project(Row, frozen=True, kw_only=True):
    """A project with a source of its own. `without` are submodules that its settings make needless."""

    name: str
    repository: str
    without: tuple[str, ...] = ()


class ExtensionVariable(Row, frozen=True, kw_only=True):
    """A variable that its build reads, for the versions from `since` up to, not including, `before`.

    `{numbers}` in the value stands for the architectures as plain numbers.
    """

    project: str
    name: str
    value: str
    why: str
    since: Version | None = None
    before: Version | None = None

    def holds(self, version: Version | None) -> bool:
        if version is None:
            return self.since is None and self.before is None
        return not (self.since and version < self.since) and not (self.before and version >= self.before)

    def told(self, targets: Iterable[Target]) -> str:
        """The value for these architectures."""
        numbers = dict.fromkeys(target.capability.sm.removeprefix("sm_") for target in targets)
        return self.value.replace("{numbers}", ";".join(numbers))


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    project: tuple[Project, ...]
    setting: tuple[ExtensionVariable, ...]


def project(name: str) -> Project | None:
    """`torchvision` or `torchaudio`; None for everything else, whose source is its sdist."""
    return next((row for row in _table().project if row.name == name.lower()), None)


def settings(name: str, version: str | None) -> tuple[ExtensionVariable, ...]:
    """What the build of a project reads. `version` None: whichever pip takes."""
    wanted = Version(version) if version else None
    plain = canonicalize_name(name)
    return tuple(row for row in _table().setting if row.project == plain and row.holds(wanted))


@cached
def _table() -> _Table:
    return decided("extension_builds", _Table)
