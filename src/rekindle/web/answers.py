"""Every question the picker can ask, answered by the resolver beforehand.

The page holds no rule: it looks its answer up. Two cards of one capability and one range of drivers get the same answer
but for their name, so answers are kept by class of card, and the name stands in them as a mark. Between two versions at
which anything in the tables changes, every driver gets the same answer, so a driver is looked up by the last such
version below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rekindle.core import codec
from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import drivers, gpus
from rekindle.knowledge.torch import releases
from rekindle.stack.from_machine import asked
from rekindle.stack.resolver import resolve
from rekindle.stack.situation import Card, Situation, Wish
from rekindle.stack.verdict import Verdict

CARD = "\u27e6card\u27e7"
DRIVER = "\u27e6driver\u27e7"
_LEAVE_OUT = ("hashes", "targets")
_UNUSED = "98765"
_OLDEST_PYTHON = Version("3.9")
"""Older ones are asked for on the command line; the picker would only be longer."""


class CardClass(msgspec.Struct, frozen=True, kw_only=True):
    """Cards that get the same answer but for their name."""

    id: str
    capabilities: tuple[str, ...]
    architecture: str
    names: tuple[str, ...]


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one class on one system. `cells` has, by Python, an answer for each driver of `drivers`."""

    drivers: tuple[str, ...]
    """`""`: not known; then the versions at which an answer may change, `0` for anything older than the first."""
    cells: dict[str, tuple[int, ...]]
    answers: tuple[dict[str, Any], ...]


def pythons() -> tuple[str, ...]:
    """`""` (not said), and every Python that a release of the tables has."""
    found = {python for release in releases.torch_releases() for python in release.pythons("linux")}
    return ("", *sorted((each for each in found if Version(each) >= _OLDEST_PYTHON), key=Version))


def classes() -> tuple[CardClass, ...]:
    found: dict[str, list[tuple[str, Card]]] = {}
    for name in sorted({gpu.name for gpu in gpus.gpus()}):
        try:
            situation = asked(gpus=(name,), system="linux")
        except RekindleError:
            continue
        card = situation.cards[0]
        key = codec.to_json(msgspec.structs.replace(card, name="", notes=()), indent=0)
        found.setdefault(key, []).append((name, card))
    rows = [cards for _, cards in sorted(found.items(), key=lambda item: item[1][0][1].capabilities)]
    return tuple(
        CardClass(
            id=f"c{number}",
            capabilities=tuple(str(each) for each in cards[0][1].capabilities),
            architecture=cards[0][1].architecture or "",
            names=tuple(name for name, _ in cards),
        )
        for number, cards in enumerate(rows)
    )


def driver_steps(system: str) -> tuple[str, ...]:
    """The versions at which an answer may change: every driver that the tables name for this system."""
    found: set[Version] = set()
    for toolkit in toolkits.toolkits():
        named = [each.windows if system == "windows" else each.linux for each in toolkit.min_drivers]
        branch = Version(toolkit.driver_branch) if toolkit.driver_branch else None
        found |= {each for each in (*named, toolkit.minor_floor(system), branch) if each is not None}
    found |= {Version(str(branch)) for branch in drivers.branches()}
    return ("", "0", *(str(each) for each in sorted(found)))


def answers_of(cards: CardClass, system: str) -> Answers:
    steps = driver_steps(system)
    kept: dict[str, int] = {}
    cells: dict[str, tuple[int, ...]] = {}
    for python in pythons():
        ask = _asker(cards.names[0], system, python, kept)
        unknown, rest = ask(""), _filled(ask, steps[1:])
        cells[python] = (unknown, *rest)
    return Answers(
        drivers=steps, cells=cells, answers=tuple(codec.from_json(each.encode(), dict[str, Any]) for each in kept)
    )


def _asker(name: str, system: str, python: str, kept: dict[str, int]) -> Callable[[str], int]:
    """Asks for one driver and gives the number of the answer; equal answers have one number."""

    def ask(driver: str) -> int:
        answer = marked(verdict(name, system, python or None, driver or None), name, driver)
        return kept.setdefault(answer, len(kept))

    return ask


def _filled(ask: Callable[[str], int], steps: Sequence[str]) -> list[int]:
    """An answer for each step. Where both ends and the middle of a stretch agree, what lies between them does too."""
    found: dict[int, int] = {}

    def at(index: int) -> int:
        if index not in found:
            found[index] = ask(_just_above(steps[index]))
        return found[index]

    def fill(first: int, last: int) -> None:
        if last - first < 2:
            at(first), at(last)
            return
        middle = (first + last) // 2
        if last - first <= 3 or len({at(first), at(middle), at(last)}) > 1:
            fill(first, middle)
            fill(middle, last)
        else:
            found.update(dict.fromkeys(range(first, last + 1), at(first)))

    fill(0, len(steps) - 1)
    return [found[index] for index in range(len(steps))]


def _just_above(step: str) -> str:
    """A driver of this step that no table names, so that its number in an answer can only be the one asked for."""
    whole = "200" if step == "0" else step
    return f"{whole}.{_UNUSED}" if "." in whole else f"{whole}.00.{_UNUSED}"


def verdict(name: str, system: str, python: str | None, driver: str | None) -> Verdict:
    situation: Situation = asked(gpus=(name,), system=system, python=python, driver=driver)
    return resolve(situation, Wish())


def shown(found: Verdict) -> dict[str, Any]:
    """What the page shows of a verdict: the same values that `rekindle plan --json` prints."""
    plain = codec.to_builtins(found)
    route = plain["recommended"]
    best = {key: value for key, value in route.items() if key not in _LEAVE_OUT and value not in (None, [])}
    others = [route for route in plain["routes"] if route != plain["recommended"]][:6]
    keep = ("route", "torch", "cuda", "summary", "loses", "variant")
    return {
        "recommended": best,
        "others": [{key: route[key] for key in keep if route.get(key)} for route in others],
        "notes": plain["notes"],
        "candidates": plain["candidates"],
    }


def marked(found: Verdict, name: str, driver: str) -> str:
    """The answer as JSON, with marks for the card's name and the driver's version."""
    text = codec.to_json(shown(found), indent=0)
    for said in sorted({name, *(card.name for card in found.situation.cards)}, key=len, reverse=True):
        text = text.replace(codec.to_json(said, indent=0)[1:-1], CARD)
    return text.replace(driver, DRIVER) if driver else text


def looked_up(kept: Answers, python: str, driver: str) -> dict[str, Any]:
    """What the page's script does, for the tests: the answer of the last step at or below this driver."""
    at = 0
    if driver:
        below = [index for index, step in enumerate(kept.drivers) if step and Version(step) <= Version(driver)]
        at = below[-1]
    return kept.answers[kept.cells[python][at]]
