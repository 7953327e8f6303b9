"""How torchvision and torchaudio are built from source for a torch: where the source is, and what it must be told."""

from __future__ import annotations

import msgspec

from rekindle.knowledge.tables import Row, cached, decided
from rekindle.version import Version


class Project(Row, frozen=True, kw_only=True):
    """A project with a source of its own. `without` are submodules that its settings make needless."""

    name: str
    repository: str
    without: tuple[str, ...] = ()


class Setting(Row, frozen=True, kw_only=True):
    """A variable that its build reads, for the versions from `since` up to, not including, `before`."""

    project: str
    name: str
    value: str
    why: str
    since: Version | None = None
    before: Version | None = None

    def holds(self, version: Version) -> bool:
        return not (self.since and version < self.since) and not (self.before and version >= self.before)


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    project: tuple[Project, ...]
    setting: tuple[Setting, ...]


def project(name: str) -> Project | None:
    """`torchvision` or `torchaudio`; None for everything else, whose source is its sdist."""
    return next((row for row in _table().project if row.name == name.lower()), None)


def settings(name: str, version: str) -> tuple[Setting, ...]:
    wanted = Version(version)
    return tuple(row for row in _table().setting if row.project == name.lower() and row.holds(wanted))


@cached
def _table() -> _Table:
    return decided("companion_builds", _Table)
