"""The static site: the picker, the matrix, a page for each capability and card, a page for each cause.

Plain files that any web server hands out, and that open from disk too: data comes as small scripts, because a page on
disk may not fetch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from rekindle import __version__
from rekindle.core import codec, files
from rekindle.core.errors import RekindleError
from rekindle.knowledge.gpu import capabilities, gpus, names
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.logs import signatures
from rekindle.stack.from_machine import asked
from rekindle.stack.matrix import Matrix, MatrixRow, matrix, spoken_source
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import SYSTEMS, Wish
from rekindle.web import answers, page
from rekindle.web.answers import CARD, DRIVER, CardClass

Say = Callable[[str], None]


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    schema: str = "rekindle.site/1"
    folder: str
    files: int
    bytes: int
    cards: int
    classes: int


class Spelling(msgspec.Struct, frozen=True, kw_only=True):
    """A name as it may be typed, and the card (by name) that the command line takes it for."""

    key: str
    card: str


def write_site(folder: Path, *, say: Say = lambda _: None, only: Iterable[str] = ()) -> Site:
    """Write the whole site. `only` names cards whose classes are answered; without it, all are."""
    every = answers.classes()
    wanted = set(only)
    chosen = [each for each in every if not wanted or wanted & set(each.names)]
    writer = _Writer(folder)
    for number, cards in enumerate(chosen, 1):
        say(f"{number} of {len(chosen)}: {', '.join(cards.capabilities)} ({cards.names[0]} …)")
        found = {system: answers.answers_of(cards, system) for system in SYSTEMS}
        for system, kept in found.items():
            data = codec.to_json(kept, indent=0)
            writer.write(f"data/{cards.id}-{system}.js", f'REKINDLE.take("{cards.id}-{system}", {data});\n')
        for name in cards.names:
            writer.write(f"gpu/{slug(name)}.html", _card_page(name, cards, found))
    writer.write("data/cards.js", f"REKINDLE.cards({codec.to_json(_index(chosen), indent=0)});\n")
    writer.write("rekindle.css", page.asset("rekindle.css"))
    writer.write("picker.js", page.asset("picker.js"))
    writer.write("index.html", page.render_linked("picker.html", root="", systems=SYSTEMS, pythons=answers.pythons()))
    grids = {system: _grid(system) for system in SYSTEMS}
    writer.write("matrix.js", page.asset("matrix.js"))
    writer.write("matrix.html", page.render_linked("matrix.html", root="", grids=grids))
    for capability in sorted({Capability.parse(each) for cards in chosen for each in cards.capabilities}):
        writer.write(f"sm/{capability}.html", _capability_page(capability, chosen))
    for cause in signatures.causes():
        writer.write(f"cause/{cause.id}.html", page.render_linked("cause.html", root="../", cause=cause))
    return Site(
        folder=str(folder),
        files=writer.files,
        bytes=writer.bytes,
        cards=sum(len(each.names) for each in chosen),
        classes=len(chosen),
    )


class _Writer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files = 0
        self.bytes = 0

    def write(self, name: str, text: str) -> None:
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(target, text)
        self.files += 1
        self.bytes += len(text.encode())


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _index(chosen: list[CardClass]) -> dict[str, Any]:
    """What the picker needs before it knows the card: names, spellings, words around a name, other makers' cards."""
    cards = {name: each.id for each in chosen for name in each.names}
    spelled = {each.key: each.card for each in spellings(cards)}
    for name in set(spelled.values()) - set(cards):
        twin = _class_of(name, chosen)
        if twin is not None:
            cards[name] = twin
    order = sorted(cards)
    return {
        "date": date.today().isoformat(),
        "version": __version__,
        "card": CARD,
        "driver": DRIVER,
        "names": order,
        "classes": [cards[name] for name in order],
        "keys": {key: order.index(name) for key, name in spelled.items() if name in cards},
        "noise": sorted(names.NOISE),
        "around": sorted(names.words("boards")),
        "branches": _branches(),
        "vendors": [[row.pattern, f"{row.sentence}. {row.hint}."] for row in names.vendors()],
    }


def spellings(cards: Iterable[str]) -> Iterable[Spelling]:
    """Names with less and less around them, as the command line reads each of them."""
    seen: set[str] = set()
    for name in cards:
        whole = names.tokens(name)
        for words in (whole, names.without_family(whole), names.without_series(whole)):
            key = squashed(" ".join(words))
            if not key or key in seen:
                continue
            seen.add(key)
            try:
                found = asked(gpus=(" ".join(words),), system="linux").cards
            except RekindleError:
                continue
            if len(found) == 1:
                yield Spelling(key=key, card=found[0].name)


def squashed(text: str) -> str:
    return re.sub(r"[^a-z0-9.+]", "", text.lower())


def _class_of(name: str, chosen: list[CardClass]) -> str | None:
    """The class of a name that stands for several cards (`Tesla P100`), if they are all of one class."""
    try:
        card = asked(gpus=(name,), system="linux").cards[0]
    except RekindleError:
        return None
    same = tuple(str(each) for each in card.capabilities)
    return next((each.id for each in chosen if each.capabilities == same), None)


def _branches() -> dict[str, str]:
    """What a bare branch number means on the command line."""
    found = {}
    for branch in range(390, 700, 5):
        try:
            found[str(branch)] = str(asked(gpus=("sm_75",), system="linux", driver=str(branch)).driver)
        except RekindleError:
            continue
    return found


def _card_page(name: str, cards: CardClass, found: dict[str, answers.Answers]) -> str:
    shown = {system: _filled(answers.looked_up(kept, "", ""), name) for system, kept in found.items()}
    return page.render_linked("card.html", root="../", name=name, cards=cards, answers=shown)


def _filled(answer: Any, name: str) -> Any:
    return codec.from_json(codec.to_json(answer, indent=0).replace(CARD, name).encode(), Any)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One release for one capability: `yes` (ready-made), `build` or `no`; what stands in the cell, and why."""

    torch: str
    state: str
    text: str
    why: str


def _grid(system: str) -> list[tuple[str, str, list[Cell]]]:
    """A row for each capability: its number, its generation, a cell for each release."""
    rows = []
    for capability in sorted({gpu.capability for gpu in gpus.gpus()}):
        generation = next(gpu.architecture for gpu in gpus.gpus() if gpu.capability == capability)
        found: Matrix = matrix(asked(gpus=(str(capability),), system=system), Wish())
        rows.append((str(capability), generation, [_cell(row) for row in found.rows]))
    return rows


def _cell(row: MatrixRow) -> Cell:
    """The best ready-made build decides: an official wheel that loses nothing, then any other."""
    if row.wheels:
        best = min(row.wheels, key=lambda wheel: (bool(wheel.loses), wheel.route is not RouteKind.OFFICIAL_WHEEL))
        names = ", ".join(wheel.name for wheel in row.wheels)
        lost = f"; {best.name} loses: {'; '.join(best.loses)}" if best.loses else ""
        return Cell(torch=row.torch, state="yes", text=best.name, why=f"ready-made: {names}{lost}")
    if row.source_cuda:
        return Cell(torch=row.torch, state="build", text="build", why=f"from source with CUDA {spoken_source(row)}")
    why = "no CUDA that this release can be built with makes code for it"
    return Cell(torch=row.torch, state="no", text="no", why=why)


def _capability_page(capability: Capability, chosen: list[CardClass]) -> str:
    listed = sorted({name for each in chosen if str(capability) in each.capabilities for name in each.names})
    return page.render_linked(
        "capability.html",
        root="../",
        capability=capability,
        facts=capabilities.facts(capability),
        cards=[(name, slug(name)) for name in listed],
    )
