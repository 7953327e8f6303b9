"""The static site: the picker, the matrix, a page for each capability and card, a page for each cause.

Plain files that any web server hands out, and that open from disk too: data comes as small scripts, because a page on
disk may not fetch.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from rekindle import __version__
from rekindle.compat import driver_card
from rekindle.core import codec, files
from rekindle.core.codec import JsonAnswer
from rekindle.core.errors import UsageError
from rekindle.inputs.driver import read_driver
from rekindle.knowledge.gpu import capabilities, drivers, gpus, names
from rekindle.knowledge.gpu.capabilities import advice
from rekindle.knowledge.gpu.names import SHOWN_BY
from rekindle.knowledge.logs import signatures
from rekindle.knowledge.tables import built_in_date, overlay_folder, use_overlay
from rekindle.model.card import Capability
from rekindle.stack.driver import devices_of, doubted
from rekindle.stack.matrix import MatrixRow, MatrixWheel, matrix, spoken_source
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import SYSTEMS, Card, Situation, Wish
from rekindle.stack.why_not import against, incompatible, why_not
from rekindle.web import answers, page, spellings
from rekindle.web.answers import CARD, CHIPS, DRIVER, Answers, AnswerShown, CardClass, TableRow
from rekindle.web.page import asset


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One release for one capability: `yes` (ready-made), `part` (and loses something), `build` or `no`."""

    torch: str
    state: str
    text: str
    why: str
    lines: tuple[str, ...] = ()
    """The ready-made builds, by name; `-` behind one that loses something."""


class GridRow(msgspec.Struct, frozen=True, kw_only=True):
    capability: str
    generation: str
    cells: tuple[Cell, ...]


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    system: str
    releases: tuple[str, ...]
    lines: tuple[str, ...]
    rows: tuple[GridRow, ...]


class SharedTexts:
    """Reasons and CUDA lines of cells, each once: a thousand cells share some hundred of them."""

    def __init__(self) -> None:
        self._why: dict[str, int] = {}
        self._lines: dict[tuple[str, ...], int] = {}

    def at(self, why: str) -> int:
        return self._why.setdefault(why, len(self._why))

    def lines_at(self, lines: tuple[str, ...]) -> int:
        return self._lines.setdefault(lines, len(self._lines))

    def data(self) -> dict[str, list[Any]]:
        return {"why": list(self._why), "lines": [list(each) for each in self._lines]}


def grid(system: str) -> Grid:
    found = {gpu.capability: gpu.architecture for gpu in gpus.gpus()}
    every = {each: _rows(str(each), system) for each in sorted(found)}
    releases = next(tuple(row.torch for row in rows) for _, rows, _ in every.values() if rows)
    return Grid(
        system=system,
        releases=releases,
        lines=tuple(sorted({wheel.name for _, rows, _ in every.values() for row in rows for wheel in row.wheels})),
        rows=tuple(
            GridRow(
                capability=str(each),
                generation=found[each],
                cells=tuple(_cell(row, situation) for row in rows)
                or tuple(Cell(torch=torch, state="no", text="no", why=note) for torch in releases),
            )
            for each, (situation, rows, note) in every.items()
        ),
    )


def _rows(capability: str, system: str) -> tuple[tuple[Situation, Verdict], tuple[MatrixRow, ...], str]:
    situation = spellings.situation(capability, system)
    found = matrix(situation, Wish())
    return (situation, resolve(situation, Wish(), as_it_is=True)), found.rows, "; ".join(found.notes)


def _cell(row: MatrixRow, where: tuple[Situation, Verdict]) -> Cell:
    """The best ready-made build decides: an official wheel that loses nothing, then any other."""
    built = f"From source: CUDA {spoken_source(row)}" if row.source_cuda else ""
    if row.wheels:
        best = min(row.wheels, key=lambda wheel: (bool(wheel.loses), wheel.route is not RouteKind.OFFICIAL_WHEEL))
        why = "\n".join([*(_spoken(wheel) for wheel in row.wheels), *([built] if built else [])])
        lines = tuple(f"{wheel.name}{'-' if wheel.loses else ''}" for wheel in row.wheels)
        # A stranger's wheel is taken only by people who say so.
        whole = not best.loses and best.route is not RouteKind.COMMUNITY
        text = best.name if best.route is RouteKind.OFFICIAL_WHEEL else best.name.partition("-")[0].partition(" ")[0]
        return Cell(torch=row.torch, state="yes" if whole else "part", text=text, why=why, lines=lines)
    situation, verdict = where
    if row.source_cuda:
        chain = against(row.torch, verdict) or why_not(f"torch=={row.torch}", situation, Wish(), verdict).chain
        first = next((each.sentence for each in chain), "")
        return Cell(torch=row.torch, state="build", text="build", why=f"{built}\nNo wheel: {first}" if first else built)
    return Cell(torch=row.torch, state="no", text="no", why=_impossible(row.torch, situation, verdict))


def _impossible(torch: str, situation: Situation, verdict: Verdict) -> str:
    """What `--why-not` says. It asks anew for the one release only where another system might have a route to it."""
    chain = against(torch, verdict)
    if chain and not any(route.torch == torch or route.route is RouteKind.WSL for route in verdict.routes):
        return incompatible(f"PyTorch {torch}", chain[0].sentence)
    return why_not(f"torch=={torch}", situation, Wish(), verdict).sentence


def _spoken(wheel: MatrixWheel) -> str:
    lost = f", without: {'; '.join(wheel.loses)}" if wheel.loses else ""
    lost += ", only with `--community`" if wheel.route is RouteKind.COMMUNITY else ""
    return f"{wheel.name}: {wheel.route.value}, CUDA {wheel.cuda}{lost} ({wheel.evidence.phrase})"


_SEVERAL = "The picker answers for one kind of card at a time. For several kinds: rekindle plan --gpu A --gpu B"


def cards_index(chosen: list[CardClass]) -> dict[str, Any]:
    order = sorted((name, each.id) for each in chosen for name in each.every)
    quiet = {each.id for each in chosen if len(each.capabilities) > 1}
    places = _Places(chosen, {pair: number for number, pair in enumerate(order)})
    known = {each.key: found for each in spellings.every() if (found := _meaning(each, places)) is not None}
    among = {each.key: found for each in spellings.every() if (found := places.of(each.among)) is not None}
    numbers = {text: found for text, card in spellings.by_number().items() if (found := places.of(card)) is not None}
    return {
        "date": date.today().isoformat(),
        "version": __version__,
        "card": CARD,
        "driver": DRIVER,
        "chips": CHIPS,
        "which": {number: answers.which_chip(name) for number, (name, kind) in enumerate(order) if kind in quiet},
        "names": [name for name, _ in order],
        "pages": [places.number[name, each.id] for each in chosen for name in each.names],
        "classes": [kind for _, kind in order],
        "quiet": sorted(quiet),
        "listed": {
            number: str(first)
            for number, (name, kind) in enumerate(order)
            if kind not in quiet and (first := driver_card.first_list(devices_of(name)))
        },
        "notes": {number: said for number, (name, _) in enumerate(order) if (said := _notes(name))},
        "keys": known,
        "among": among,
        "shorts": sorted(key for key in known if gpus.among_words(tuple(key.split()))),
        "generations": {
            word: [each.id for each in chosen if names.of_generation(each.architecture, [word])]
            for word in sorted(names.generations())
        },
        "numbers": numbers,
        "pci": [[spellings.for_browser(each), *groups] for each, groups in _PCI],
        "patterns": {name: spellings.for_browser(text) for name, text in names.patterns().items()},
        "words": {
            "noise": sorted(names.NOISE),
            "family": sorted(names.FAMILY),
            "series": sorted(names.SERIES),
            "boards": sorted(names.words("boards")),
            "mobile": sorted(names.words("mobile")),
        },
        "vendors": [[row.pattern, f"{row.sentence}. {row.hint}.", row.own] for row in names.vendors()],
        "branches": {system: _branches(system) for system in SYSTEMS},
        "say": {
            "several": _SEVERAL,
            "pci": "No GPU with PCI id 10de:{} is in Rekindle's data.",
            "capability": "No GPU of compute capability {} is in Rekindle's data.",
            "read": "`{typed}` is read as {name}",
            "unlisted": doubted(driver_card.older_than_lists("{name}", "{first}", "{driver}")),
        },
    }


_PCI = ((gpus.PCI_PATH, (2, 4, 3)), (gpus.PCI_PAIR, (2, 3, 4)), (gpus.PCI_BARE, (1, 0, 0)))
"""Each expression with the numbers of its groups: device, and of the board its vendor and number."""


class _Places:
    """Where a card stands in the list. One name may stand in two classes: `GRID K2` is one card, or several boards."""

    def __init__(self, chosen: list[CardClass], number: dict[tuple[str, str], int]) -> None:
        self._kinds = {each.key: each.id for each in chosen}
        self.number = number

    def of(self, card: Card | None) -> int | None:
        return self.number.get((card.name, self._kinds.get(answers.key(card), ""))) if card else None


def _meaning(each: spellings.Spelling, places: _Places) -> int | str | None:
    """The card's number from 1 on, negative where the answer says what the name was read as; or the refusal."""
    if each.card is None:
        return each.refusal
    number = places.of(each.card)
    return None if number is None else -number - 1 if each.noted else number + 1


def _notes(name: str) -> tuple[str, ...]:
    found = next((card.notes for card in spellings.cards_from_text(name)), ())
    return tuple(note for note in found if " is read as " not in note)


def _branches(system: str) -> dict[str, tuple[str, str]]:
    """What a bare number means as a driver, where it is a branch with a newest release."""
    meant = {str(branch): read_driver(str(branch), system) for branch in drivers.branches()}
    return {branch: (str(each.driver.version), each.note) for branch, each in meant.items() if each.note}


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
    for each in folder.glob("*"):
        files.no_links(each, folder)  # not after minutes of work
    writer = _Writer(folder)
    every = list(answered(only=only, jobs=jobs, say=say))
    chosen = [cards for cards, _ in every]
    for cards, found in every:
        _write_class(writer, cards, found)
    writer.write("table.json", codec.to_json(installer_table(every), indent=0) + "\n")
    writer.write("table.d.ts", table_types())
    writer.write("data/cards.js", f"REKINDLE.cards({codec.to_json(cards_index(chosen), indent=0)});\n")
    writer.write("rekindle.css", page.asset("rekindle.css"))
    for name in SCRIPTS:
        writer.write(name, page.asset(name))
    writer.write("index.html", page.render_linked("picker.html", root="", systems=SYSTEMS, pythons=answers.pythons()))
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
    say("sorting the cards into kinds")
    chosen = [each for each in answers.classes() if not wanted or wanted & set(each.every)]
    say(f"answering for {len(chosen)} kinds of cards")
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
        try:
            with _deaf_to_ctrl_c():
                asked = pool.map(_on_each_system, chosen)
            yield from zip(chosen, asked, strict=True)
        except BaseException:
            for each in multiprocessing.active_children():
                each.terminate()
            pool.shutdown(cancel_futures=True)
            raise


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """What is started here does not hear Ctrl-C, not even while it begins: whoever started it ends it."""
    if sys.platform == "win32":
        import ctypes

        deaf = ctypes.windll.kernel32.SetConsoleCtrlHandler  # what ignores Ctrl-C hands that on to what it starts
        deaf(None, True)
        try:
            yield
        finally:
            deaf(None, False)
    else:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
        files.write_text(self._folder / name, text, inside=self._folder)
        self.files += 1
        self.bytes += len(text.encode())


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


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
    architectures = {each.capabilities: each.architecture for each in reversed(chosen)}
    rows = [(each, architectures.get((str(each),), ""), _cards(each, chosen)) for each in listed]
    return page.render_linked("cards.html", root="", rows=rows)


def causes_page() -> str:
    families: dict[str, list[signatures.CauseRow]] = {}
    for cause in signatures.causes():
        families.setdefault(cause.family, []).append(cause)
    return page.render_linked("causes.html", root="", families=families)


def _cards(capability: Capability, chosen: list[CardClass]) -> list[tuple[str, str]]:
    listed = sorted({name for each in chosen if str(capability) in each.capabilities for name in each.names})
    return [(name, slug(name)) for name in listed]


_WHICH_CHIP = f"name yours by its PCI id, as `10de:0fc0`; {SHOWN_BY} shows it"
Steps = tuple[tuple[str, int], ...]


class InstallerTable(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    """`names` and `pci` lead to a class of `classes`; that leads by system and Python to numbers of `rows`.

    Texts have marks: `card` stands for the card's name, `driver` for the driver that was asked for.
    """

    schema: str = "rekindle.table/1"
    rekindle: str
    observed_at: str
    marks: dict[str, str]
    names: dict[str, int]
    """In small letters."""
    pci: dict[str, int]
    """Device ids of NVIDIA: `1b06`. Those sold with several chips are left out."""
    classes: tuple[dict[str, dict[str, int]], ...]
    """By system, by Python (`""`: not said): the number of its steps."""
    steps: tuple[Steps, ...]
    """Drivers, rising, each with the row that holds from it on; the first one, `""`, is for a driver not known."""
    rows: tuple[TableRow, ...]


def installer_table(answered: Iterable[tuple[CardClass, dict[str, Answers]]]) -> InstallerTable:
    rows: dict[TableRow, int] = {}
    steps: dict[Steps, int] = {}
    names: dict[str, int] = {}
    chips: dict[str, tuple[bool, int]] = {}
    classes = []
    for number, (cards, found) in enumerate(answered):
        for name in cards.every:
            # As in `plan`: a name is what NVIDIA's lists call so; one sold with several chips stands for all of them.
            rank, plain = (name in cards.names, len(cards.capabilities)), name.lower()
            if rank > chips.get(plain, (False, 0)):
                names[plain], chips[plain] = number, rank
        place = {}
        for system, kept in found.items():
            places = [rows.setdefault(_for_any_name(row), len(rows)) for row in kept.rows]
            place[system] = {
                python: steps.setdefault(_steps(kept.drivers, [places[cell] for cell in cells]), len(steps))
                for python, cells in kept.cells.items()
            }
        classes.append(place)
    return InstallerTable(
        rekindle=__version__,
        observed_at=built_in_date(),
        marks={"card": CARD, "driver": DRIVER},
        names=dict(sorted(names.items())),
        pci=_pci(names),
        classes=tuple(classes),
        steps=tuple(steps),
        rows=tuple(rows),
    )


def table_types() -> str:
    """The same for TypeScript."""
    return asset("table.d.ts")


def _for_any_name(row: TableRow) -> TableRow:
    """How to tell the chip of a card without the ids of one name: the row is that of many."""
    change = row.change.replace(CHIPS, _WHICH_CHIP) if row.change else row.change
    return msgspec.structs.replace(row, change=change)


def _steps(drivers: tuple[str, ...], cells: list[int]) -> Steps:
    """The first two always; then where the answer changes."""
    return tuple(
        (driver, cell)
        for at, (driver, cell) in enumerate(zip(drivers, cells, strict=True))
        if at < 2 or cell != cells[at - 1]
    )


def _pci(names: dict[str, int]) -> dict[str, int]:
    found: dict[str, set[int]] = {}
    for gpu in gpus.gpus():
        for pci in gpu.pci_ids:
            if gpu.name.lower() in names:
                found.setdefault(pci.partition(":")[0], set()).add(names[gpu.name.lower()])
    return {pci: kinds.pop() for pci, kinds in sorted(found.items()) if len(kinds) == 1}
