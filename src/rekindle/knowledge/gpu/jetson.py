"""Jetson boards and other GPUs that come with an Arm processor: which software they run."""

from __future__ import annotations

from rekindle.core.version import Version
from rekindle.knowledge.tables import NamedRow, Row, cached, rows


class JetPack(Row, frozen=True, kw_only=True):
    """NVIDIA's system for a board, with the wheel of PyTorch that NVIDIA made for it."""

    version: str
    covers: str
    l4t: int
    python: str
    cuda: Version
    torch: str
    wheel: str
    packages: tuple[str, ...]
    """What `apt-get` has to bring before."""
    loses: tuple[str, ...] = ()
    cusparselt: str | None = None
    """Where the cuSPARSELt is that its wheel loads and JetPack does not bring."""


class _Board(Row, frozen=True, kw_only=True):
    chip: str
    jetpacks: tuple[str, ...]


class _Arm(NamedRow, frozen=True, kw_only=True):
    names: tuple[str, ...]


class _Linux(Row, frozen=True, kw_only=True):
    """The Jetson Linux of a JetPack for which NVIDIA made no wheel."""

    jetpack: int
    major: int


class _Release(Row, frozen=True, kw_only=True):
    l4t: str
    jetpack: str


_board = rows("jetson.toml", "board", _Board)
_jetpack = rows("jetson.toml", "jetpack", JetPack)
_linux = rows("jetson.toml", "l4t", _Linux)
_release = rows("jetson.toml", "release", _Release)
_arm = rows("jetson.toml", "arm", _Arm)


@cached
def is_jetson(chip: str) -> bool:
    return any(row.chip == chip for row in _board())


@cached
def jetpacks(chip: str) -> tuple[JetPack, ...]:
    """What a board can run, newest first; empty when no JetPack of it has a PyTorch."""
    named = next((row.jetpacks for row in _board() if row.chip == chip), ())
    return tuple(row for version in named for row in _jetpack() if row.version == version)


@cached
def l4t_of(jetpack: int) -> int | None:
    """The L4T of a JetPack by its first number: 36 of 6."""
    known = {row.jetpack: row.major for row in _linux()} | {Version(row.version).major: row.l4t for row in _jetpack()}
    return known.get(jetpack)


@cached
def release_of(l4t: str) -> str | None:
    """The JetPack of an L4T by its first two numbers: `6.0` of `36.2`."""
    return next((row.jetpack for row in _release() if row.l4t == l4t), None)


@cached
def only_chip(l4t: str) -> str | None:
    """The chip of every board that runs this L4T, where it is one: 36 is Orin's."""
    found = {row.chip for row in _board() for each in jetpacks(row.chip) if str(each.l4t) == l4t}
    return found.pop() if len(found) == 1 else None


@cached
def only_on_arm(name: str) -> bool:
    """Is this GPU sold with an Arm processor only?"""
    plain = name.removeprefix("NVIDIA ")
    first = plain.split()[0] if plain else ""
    return any(first in row.names or plain in row.names for row in _arm())
