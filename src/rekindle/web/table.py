"""One file for installers: card, system, Python and driver to index, pins and what is lost.

The same answers as the site's, without their texts: every answer once, and for each class of cards, system and Python
the drivers from which another one holds.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rekindle import __version__
from rekindle.core.codec import JsonAnswer
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.names import SHOWN_BY
from rekindle.knowledge.tables import built_in_date
from rekindle.web.answers import CARD, CHIPS, DRIVER, Answers, CardClass, TableRow
from rekindle.web.page import asset

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


def types() -> str:
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
