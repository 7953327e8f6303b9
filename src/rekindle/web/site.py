"""The static site: the picker, the matrix, a page for each capability and card, a page for each cause.

Plain files that any web server hands out, and that open from disk too: data comes as small scripts, because a page on
disk may not fetch.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path

import msgspec

from rekindle import __version__
from rekindle.core import codec, files
from rekindle.core.errors import UsageError
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.capabilities import advice
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.logs import signatures
from rekindle.knowledge.tables import overlay_folder, use_overlay
from rekindle.stack.situation import SYSTEMS
from rekindle.web import answers, page
from rekindle.web.answers import Answers, CardClass
from rekindle.web.grid import Grid, SharedTexts, grid
from rekindle.web.index import cards_index
from rekindle.web.shown import AnswerShown
from rekindle.web.table import installer_table, types

Say = Callable[[str], None]
SCRIPTS = ("names.js", "picker.js", "matrix.js", "copy.js")


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    schema: str = "rekindle.site/1"
    folder: str
    files: int
    bytes: int
    cards: int
    classes: int


def write_site(folder: Path, *, say: Say = lambda _: None, only: Iterable[str] = (), jobs: int = 1) -> Site:
    """Write the whole site. `only` names cards whose classes are answered; without it, all are."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"`{folder}` is a file, and the site is a folder", hint="name a folder with `-o`")
    writer = _Writer(folder)
    every = list(answered(only=only, jobs=jobs, say=say))
    chosen = [cards for cards, _ in every]
    for cards, found in every:
        _write_class(writer, cards, found)
    writer.write("table.json", codec.to_json(installer_table(every), indent=0) + "\n")
    writer.write("table.d.ts", types())
    writer.write("data/cards.js", f"REKINDLE.cards({codec.to_json(cards_index(chosen), indent=0)});\n")
    writer.write("rekindle.css", page.asset("rekindle.css"))
    for name in SCRIPTS:
        writer.write(name, page.asset(name))
    writer.write("index.html", picker_page())
    writer.write("matrix.html", matrix_page({system: grid(system) for system in SYSTEMS}))
    listed = sorted({Capability.parse(each) for cards in chosen for each in cards.capabilities})
    for capability in listed:
        writer.write(f"sm/{capability}.html", capability_page(capability, chosen))
    writer.write("cards.html", cards_page(listed, chosen))
    for cause in signatures.causes():
        writer.write(f"cause/{cause.id}.html", page.render_linked("cause.html", root="../", cause=cause))
    writer.write("causes.html", causes_page())
    return Site(
        folder=str(folder),
        files=writer.files,
        bytes=writer.bytes,
        cards=sum(len(each.names) for each in chosen),
        classes=len(chosen),
    )


def answered(
    *, only: Iterable[str] = (), jobs: int = 1, say: Say = lambda _: None
) -> Iterator[tuple[CardClass, dict[str, Answers]]]:
    """Each class with its answers; `only` names cards whose classes are answered."""
    wanted = set(only)
    chosen = [each for each in answers.classes() if not wanted or wanted & set(each.every)]
    for number, (cards, found) in enumerate(_answered(chosen, jobs), 1):
        say(f"{number} of {len(chosen)}: {', '.join(cards.capabilities)} ({cards.sample} ...)")
        yield cards, found


def _answered(chosen: list[CardClass], jobs: int) -> Iterator[tuple[CardClass, dict[str, Answers]]]:
    """With several jobs, processes ask side by side: threads would take turns."""
    if jobs == 1 or len(chosen) < 2:
        for cards in chosen:
            yield cards, _on_each_system(cards)
        return
    started = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(chosen)), started, use_overlay, (overlay_folder(),)) as pool:
        yield from zip(chosen, pool.map(_on_each_system, chosen), strict=True)


def _on_each_system(cards: CardClass) -> dict[str, Answers]:
    return {system: answers.answers_of(cards, system) for system in SYSTEMS}


def _write_class(writer: _Writer, cards: CardClass, found: dict[str, Answers]) -> None:
    for system, kept in found.items():
        data = codec.to_json(answers.packed(kept), indent=0)
        writer.write(f"data/{cards.id}-{system}.js", f'REKINDLE.take("{cards.id}-{system}", {data});\n')
    plain = {system: answers.looked_up(kept, "", "") for system, kept in found.items()}
    for name in cards.names:
        writer.write(f"gpu/{slug(name)}.html", card_page(name, cards, plain))


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


def picker_page() -> str:
    return page.render_linked("picker.html", root="", systems=SYSTEMS, pythons=answers.pythons())


def matrix_page(grids: dict[str, Grid]) -> str:
    return page.render_linked("matrix.html", root="", grids=grids, shared=SharedTexts())


def card_page(name: str, cards: CardClass, found: dict[str, AnswerShown]) -> str:
    shown = {system: answers.filled(answer, name) for system, answer in found.items()}
    return page.render_linked(
        "card.html", root="../", name=name, cards=cards, answers=shown, date=date.today(), version=__version__
    )


def capability_page(capability: Capability, chosen: list[CardClass]) -> str:
    return page.render_linked(
        "capability.html",
        root="../",
        capability=capability,
        facts=capabilities.facts(capability),
        advice=advice(capability),
        cards=_cards(capability, chosen),
    )


def cards_page(listed: list[Capability], chosen: list[CardClass]) -> str:
    rows = [(each, _architecture(each, chosen), _cards(each, chosen)) for each in listed]
    return page.render_linked("cards.html", root="", rows=rows)


def causes_page() -> str:
    families: dict[str, list[signatures.CauseRow]] = {}
    for cause in signatures.causes():
        families.setdefault(cause.family, []).append(cause)
    return page.render_linked("causes.html", root="", families=families)


def _architecture(capability: Capability, chosen: list[CardClass]) -> str:
    return next((each.architecture for each in chosen if each.capabilities == (str(capability),)), "")


def _cards(capability: Capability, chosen: list[CardClass]) -> list[tuple[str, str]]:
    listed = sorted({name for each in chosen if str(capability) in each.capabilities for name in each.names})
    return [(name, slug(name)) for name in listed]
