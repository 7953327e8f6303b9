"""Programs beside PyTorch that people run on a card: which of their releases has code for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from rekindle.core.errors import UnknownName, did_you_mean
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.tables import NamedRow, Row, rows
from rekindle.model.card import Capability, Target
from rekindle.model.requirement import canonical_name


class OtherProgram(NamedRow, frozen=True, kw_only=True):
    """`page` says where it comes from, `note` what its owner should know, `otherwise` what to do with an older card."""

    also: tuple[str, ...] = ()
    page: str
    torch: str | None = None
    """It brings no GPU code of its own: any PyTorch of these versions serves it."""
    brings: str | None = None
    """The one of them that it installs by itself."""
    python: str | None = None
    """The one that it is made for."""
    note: str = ""
    note_below: Capability | None = None
    """Only the owner of an older card than this should know it."""
    otherwise: str
    jetson: str = ""
    """Where a Jetson's owner finds it."""


class Portable(Row, frozen=True, kw_only=True):
    """A folder with everything in it that a program's makers publish, for the cards from `first` to `last`."""

    program: str
    system: str
    first: Capability
    last: Capability
    cuda: Version
    link: str


class ProgramRelease(Row, frozen=True, kw_only=True):
    """One release, or the newest of several with the same code; a program's rows stand newest first."""

    program: str
    version: str
    systems: tuple[str, ...]
    machine: str = "x86_64"
    cuda: Version
    """Whose driver it needs."""
    least_driver: dict[str, Version] = msgspec.field(default_factory=dict)
    """The driver that its own documentation asks for, from each capability on, where that is more."""
    targets: tuple[Target, ...]
    pythons: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    """What pip is asked for."""
    build: tuple[tuple[str, ...], ...] = ()
    """The commands that build it; `{numbers}` stands for the cards' numbers."""
    torch: str | None = None
    """The one PyTorch that it asks for, with its line where that is not the one of the index."""
    cudnn: str | None = None
    """The package of cuDNN that it brings, in the newest version that it admits."""
    cudnn_from: Version | None = None
    note: str = ""
    note_below: Capability | None = None

    def driver_for(self, cards: Sequence[Capability]) -> Version | None:
        """The driver that its documentation asks for with the most demanding of these cards."""
        floors = sorted((Capability.parse(first), least) for first, least in self.least_driver.items())
        asked = [next((least for first, least in reversed(floors) if first <= card), None) for card in cards]
        return max((each for each in asked if each), default=None)

    def serves(self, card: Capability) -> Runs:
        """As it is, by JIT, or not."""
        found = {runs(target, card) for target in self.targets}
        return next((how for how in (Runs.NATIVE, Runs.JIT_UNVERIFIED) if how in found), Runs.NO)


programs = rows("programs.toml", "program", OtherProgram)
_portable = rows("programs.toml", "portable", Portable)
_release = rows("programs.toml", "release", ProgramRelease)


def portable(program: str, system: str, cards: Sequence[Capability]) -> Portable | None:
    """The ready-made folder that serves all of these cards."""
    rows = (row for row in _portable() if (row.program, row.system) == (program, system))
    return next((row for row in rows if all(row.first <= card <= row.last for card in cards)), None)


def notes_of(row: OtherProgram | ProgramRelease, cards: Sequence[Capability]) -> list[str]:
    """What the owner of these cards should know of it."""
    meant = row.note_below is None or any(card < row.note_below for card in cards)
    return [row.note] if row.note and meant else []


def known(name: str) -> OtherProgram | None:
    """By its name, or another that people use."""
    plain = canonical_name(name)
    return next((row for row in programs() if plain in map(canonical_name, (row.id, *row.also))), None)


def brings_torch(name: str) -> bool:
    """Does each release of it ask for one PyTorch, which it then installs by itself?"""
    found = known(name)
    return found is not None and any(row.torch for row in releases(found.id))


def program(name: str) -> OtherProgram:
    found = known(name)
    if found is None:
        every = [row.id for row in programs()]
        near, itself = did_you_mean(canonical_name(name), every), "for PyTorch itself leave `--for` out"
        raise UnknownName(f"no program `{name[:40]}` in the tables", hint=f"{near}{itself}; one of {', '.join(every)}")
    return found


def releases(id: str) -> Sequence[ProgramRelease]:
    """Newest first."""
    return [row for row in _release() if row.program == id]


def releases_as(name: str) -> Sequence[ProgramRelease]:
    """Those that pip knows by this very name (`cupy-cuda12x`), else all of the program that people call so."""
    row = program(name)
    plain = canonical_name(name)
    every = releases(row.id)
    own = [each for each in every if plain != row.id and any(_project(one) == plain for one in each.requirements)]
    return own or every


def free_of_torch(name: str) -> bool:
    """Is it a package of pip's that goes beside any torch, or none?"""
    every = releases_as(name) if known(name) else ()
    return any(row.requirements for row in every) and all(row.torch is None for row in every)


def _project(requirement: str) -> str:
    return canonical_name(re.split(r"[\[=]", requirement, maxsplit=1)[0])
