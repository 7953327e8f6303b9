"""What building PyTorch needs beyond its own files: pairs known to be built, cuDNN ranges, spellings, broken tools."""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.core.version import Version
from rekindle.knowledge.tables import NamedRow, cached, rows
from rekindle.model.card import Capability, Target


class _Range(NamedRow, frozen=True, kw_only=True):
    first_torch: Version
    last_torch: Version

    def holds(self, minor: Version) -> bool:
        return self.first_torch <= minor.major_minor <= self.last_torch


class Built(_Range, frozen=True, kw_only=True):
    """Somebody has built these releases with one of these toolkits for these cards."""

    cuda: tuple[Version, ...]
    system: str
    cards: tuple[Capability, ...]
    who: str


class CudnnRange(_Range, frozen=True, kw_only=True):
    """cuDNN `below` this compiles with these releases."""

    below: Version
    why: str


class ArchSyntax(_Range, frozen=True, kw_only=True):
    """What CMake of these releases reads in an architecture list."""

    major_digits: int
    suffixes: str

    def admits(self, target: Target) -> bool:
        return len(str(target.capability.major)) <= self.major_digits and target.suffix in ("", *self.suffixes)


class BadTool(NamedRow, frozen=True, kw_only=True):
    tool: str
    version: Version
    system: str
    trouble: str


class LeastTool(NamedRow, frozen=True, kw_only=True):
    """The oldest release of a program that a build should use."""

    least: Version
    why: str


class Since(NamedRow, frozen=True, kw_only=True):
    """The first release with something; `what` says with what."""

    version: Version
    what: str


class SteeringVariables(NamedRow, frozen=True, kw_only=True):
    """Variables that name a program (`programs`) or a folder (`folders`)."""

    names: tuple[str, ...]


class PythonPreference(NamedRow, frozen=True, kw_only=True):
    order: tuple[str, ...]
    why: str


_built = rows("building.toml", "built", Built)
_cudnn_range = rows("building.toml", "cudnn_range", CudnnRange)
_arch_syntax = rows("building.toml", "arch_syntax", ArchSyntax)
_bad_tool = rows("building.toml", "bad_tool", BadTool)
_python = rows("building.toml", "python", PythonPreference)
_tool = rows("building.toml", "tool", LeastTool)
_since = rows("building.toml", "since", Since)
_variable = rows("building.toml", "variable", SteeringVariables)


@cached
def built_by(torch: str, cuda: Version | None, system: str, card: Capability) -> Built | None:
    """Who is known to have built this release with this toolkit (None: with any) for such a card."""
    minor = Version.parse(torch).major_minor
    rows = (row for row in _built() if row.holds(minor) and row.system == system and card in row.cards)
    return next((row for row in rows if cuda is None or cuda in row.cuda), None)


@cached
def cudnn_range(torch: str) -> CudnnRange | None:
    """The upper end of the cuDNN that compiles with a release; None: no end is known."""
    return next((row for row in _cudnn_range() if row.holds(Version.parse(torch))), None)


@cached
def arch_syntax(torch: str) -> ArchSyntax | None:
    return next((row for row in _arch_syntax() if row.holds(Version.parse(torch))), None)


def bad_tool(tool: str, version: Version, system: str) -> BadTool | None:
    return next(
        (row for row in _bad_tool() if row.tool == tool and row.system == system and row.version == version),
        None,
    )


def tool(name: str) -> LeastTool:
    return next(row for row in _tool() if row.id == name)


@cached
def since(name: str) -> Version:
    """The first release with it, by the name of its row."""
    return next(row.version for row in _since() if row.id == name)


def steering_variables(kind: str) -> tuple[str, ...]:
    """The names of a kind: `programs` or `folders`."""
    return next(row.names for row in _variable() if row.id == kind)


def preferred_python(among: Sequence[str]) -> str | None:
    """The Python to take when nobody says, of those a release has; None when it has none."""
    order = _python()[0].order
    return min(among, key=lambda text: order.index(text) if text in order else len(order), default=None)


def python_reason() -> str:
    return _python()[0].why
