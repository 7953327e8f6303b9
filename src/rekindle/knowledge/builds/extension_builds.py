"""What the build of an extension must be told, and where the source of torchvision and torchaudio is."""

from __future__ import annotations

from collections.abc import Iterable

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.tables import Row, rows
from rekindle.model.card import Capability, Target
from rekindle.model.requirement import canonical_name


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
        return _within(version, self.since, self.before)

    def told(self, targets: Iterable[Target]) -> str:
        """The value for these architectures."""
        numbers = dict.fromkeys(target.capability.sm.removeprefix("sm_") for target in targets)
        return self.value.replace("{numbers}", ";".join(numbers))


class OwnTargets(Row, frozen=True, kw_only=True):
    """What a project's build compiles for, whatever it is asked. `sources` False: its sdists lack the CUDA files."""

    project: str
    targets: tuple[Target, ...]
    since: Version | None = None
    before: Version | None = None
    sources: bool = True

    def holds(self, version: Version | None) -> bool:
        """Without a version, pip takes the newest."""
        return self.before is None if version is None else _within(version, self.since, self.before)

    def serves(self, card: Capability) -> bool:
        return any(runs(target, card) is not Runs.NO for target in self.targets)


def _within(version: Version, since: Version | None, before: Version | None) -> bool:
    return not (since and version < since) and not (before and version >= before)


_project = rows("extension_builds.toml", "project", Project)
_setting = rows("extension_builds.toml", "setting", ExtensionVariable)
_own_targets = rows("extension_builds.toml", "own_targets", OwnTargets)


def project(name: str) -> Project | None:
    """`torchvision` or `torchaudio`; None for everything else, whose source is its sdist."""
    return next((row for row in _project() if row.name == name.lower()), None)


def settings(name: str, version: str | None) -> tuple[ExtensionVariable, ...]:
    """What the build of a project reads. `version` None: whichever pip takes."""
    wanted = Version.find(version or "")  # `2.7.4.post1` is 2.7.4
    plain = canonical_name(name)
    return tuple(row for row in _setting() if row.project == plain and row.holds(wanted))


def own_targets(name: str, version: str | None) -> OwnTargets | None:
    """The architectures of a project that takes no list of yours; None for every other. `version` None: the newest."""
    wanted = Version.find(version or "")  # `2.7.4.post1` is 2.7.4
    plain = canonical_name(name)
    return next((row for row in _own_targets() if row.project == plain and row.holds(wanted)), None)


def newest_serving(name: str, cards: Iterable[Capability]) -> OwnTargets | None:
    """The newest versions of such a project that can be built for all of these cards; None when there are none."""
    wanted = tuple(cards)
    plain = canonical_name(name)
    fitting = [
        row
        for row in _own_targets()
        if row.project == plain and row.sources and all(row.serves(card) for card in wanted)
    ]
    return max(fitting, key=lambda row: (row.before is None, row.before or Version("0")), default=None)


def lists() -> tuple[ExtensionVariable, ...]:
    """The variables that name the architectures of one project, in place of TORCH_CUDA_ARCH_LIST."""
    return tuple(row for row in _setting() if row.value == "{numbers}")
