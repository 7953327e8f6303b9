"""The list of cards that the picker loads first: names, spellings, PCI ids, drivers, what to say to odd input."""

from __future__ import annotations

from datetime import date
from typing import Any

from rekindle import __version__
from rekindle.inputs.driver import read_driver
from rekindle.knowledge.gpu import drivers, gpus, names
from rekindle.stack.situation import SYSTEMS, Card
from rekindle.web import answers, spellings
from rekindle.web.answers import CARD, CHIPS, DRIVER, CardClass

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
        "notes": {number: said for number, (name, _) in enumerate(order) if (said := _notes(name))},
        "keys": known,
        "among": among,
        "shorts": sorted(key for key in _shorts() if key in known),
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
            "first": (read_driver("987", "linux").note or "").replace("987", "{}"),
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
    found = next((card.notes for card in spellings.named(name)), ())
    return tuple(note for note in found if " is read as " not in note)


def _shorts() -> set[str]:
    """Names of two words or more that may stand among a shop's words."""
    short = (names.without_family(names.tokens(gpu.name)) for gpu in gpus.gpus() if gpu.official)
    return {" ".join(words) for words in short if len(words) > 1 and any(c.isdigit() for w in words for c in w)}


def _branches(system: str) -> dict[str, tuple[str, str | None]]:
    """What a bare number means as a driver, where it is a branch with a newest release."""
    found = {}
    for branch in drivers.branches():
        meant = read_driver(str(branch), system)
        found[str(branch)] = (str(meant.driver.version), meant.note)
    return found
