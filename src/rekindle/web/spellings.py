"""What the picker needs to read a card's name: every spelling that it may meet, and the card it was taken for.

The page takes a name apart with the expressions and the lists of words of `knowledge.gpu.names`, and looks the words up
here. Which card they mean was decided by the command line's own reader when the site was made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec

from rekindle.core.errors import RekindleError, UnknownName
from rekindle.knowledge.gpu import gpus, names
from rekindle.stack.from_machine import situation_here
from rekindle.stack.situation import Card, Situation, cards_named, machine_of


class Spelling(msgspec.Struct, frozen=True, kw_only=True):
    """A name in words, and what the command line takes it for: a card, or a refusal with its hint."""

    key: str
    card: Card | None = None
    noted: bool = False
    """The answer says what the name was read as."""
    refusal: str = ""
    among: Card | None = None
    """The card where the words are said with a family's name or with a shop's words around them, if it is another."""


@cache
def every() -> tuple[Spelling, ...]:
    """Each spelling once: the names of the tables, shorter forms of them, and nicknames."""
    found: dict[str, Spelling] = {}
    for name in sorted({gpu.name for gpu in gpus.gpus()}):
        for words in _forms(names.tokens(name)):
            _add(found, " ".join(words))
        for letters in sorted(names.in_one_piece(name)):
            _add(found, letters, letters)
    for said in names.aliases():
        _add(found, said)
    return tuple(found.values())


@cache
def by_number() -> dict[str, Card]:
    """Cards by PCI id (`1b06`, `1b06:1043:85e4`) and capabilities by their digits (`sm61`)."""
    found: dict[str, Card] = {}
    for gpu in gpus.gpus():
        digits = str(gpu.capability).replace(".", "")
        found.setdefault(f"sm{digits}", cards_named((gpu.capability.sm,))[0])
        for pci in gpu.pci_ids:
            device, _, board = pci.partition(":")
            found.setdefault(pci, cards_named((f"10de:{device}" + (f" {board}" if board else ""),))[0])
            found.setdefault(device, cards_named((f"10de:{device}",))[0])
    return found


def situation(name: str, system: str = "linux", python: str | None = None, driver: str | None = None) -> Situation:
    """What the command line makes of `--gpu NAME` and the rest, whatever computer the site is made on."""
    machine = machine_of(cards_named((name,)))
    return situation_here(gpus=(name,), system=system, machine=machine, python=python, driver=driver)


def cards_from_text(name: str) -> tuple[Card, ...]:
    """The cards of a name; none for what a driver calls a card that it cannot name."""
    try:
        return cards_named((name,))
    except RekindleError:
        return ()


def _add(found: dict[str, Spelling], text: str, letters: str = "") -> None:
    key = letters or " ".join(names.tokens(text))
    if not key or key in found:
        return
    try:
        # The page looks for a name among other words itself, and would stop at a part of what was typed.
        if not gpus.recognised(text) or gpus.only_inside(text):
            return
        cards = cards_named((text,))
    except UnknownName:
        return
    except RekindleError as error:
        refusal = f"{error.message}: {error.hint}" if error.hint else error.message
        found[key] = Spelling(key=key, refusal=refusal, among=_among(key))
        return
    if len(cards) == 1:
        noted = any(" is read as " in note for note in cards[0].notes)
        card = msgspec.structs.replace(cards[0], notes=())
        among = _among(key) if noted or key in _shorts() else None
        found[key] = Spelling(key=key, card=card, noted=noted, among=among if among != card else None)


@cache
def _shorts() -> frozenset[str]:
    return frozenset(" ".join(names.without_family(names.tokens(gpu.name))) for gpu in gpus.gpus())


def _among(key: str) -> Card | None:
    cards = cards_from_text(f"geforce {key}")
    return msgspec.structs.replace(cards[0], notes=()) if len(cards) == 1 else None


def _forms(whole: list[str]) -> Iterator[list[str]]:
    """A name with less and less of it said: no family, no series, no memory, no board, no letter at the end."""
    short = names.without_family(whole)
    for words in (whole, short, names.without_series(whole), [word for word in short if word != "jetson"]):
        yield words
        yield [word for word in words if not re.match(names.patterns()["memory"], word)]
        for count in range(1, len(words)):
            if any(letter.isdigit() for word in words[:count] for letter in word):
                yield words[:count]
        if words and re.fullmatch(r".*\d[a-z]", words[-1]):
            yield [*words[:-1], words[-1][:-1]]


def for_browser(pattern: str) -> str:
    """An expression of Python's as JavaScript has it; all of them are used without regard to case."""
    return pattern.replace("(?i)", "").replace(r"\Z", "$").replace("(?i:", "(?:")
