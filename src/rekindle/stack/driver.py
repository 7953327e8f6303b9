"""Does a driver run what a toolkit makes, on these cards? Fully, by minor-version compatibility, or not at all."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolkits import Toolkit
from rekindle.knowledge.gpu import drivers
from rekindle.knowledge.gpu.drivers import Window
from rekindle.stack.rules import Candidate, Rejection, broken
from rekindle.stack.situation import Card, Situation


class Driving(msgspec.Struct, frozen=True, kw_only=True):
    """`need` is the oldest driver that will do. Without `jit` only native code runs, not PTX."""

    need: Version
    full: Version
    jit: bool
    text: str
    detail: str


def window_of(situation: Situation) -> Window:
    """The drivers that drive all the cards."""
    return drivers.common([card_window(card, situation.driver_system) for card in situation.cards])


def card_window(card: Card, system: str) -> Window:
    return drivers.common(
        [drivers.window(each, system, last_branch=card.last_driver_branch) for each in card.capabilities]
    )


def cards_driven(situation: Situation, window: Window) -> list[Rejection]:
    """What speaks against the cards and their driver, whatever PyTorch is chosen."""
    candidate = Candidate(name="any PyTorch")
    if window.empty:
        old = min(situation.cards, key=lambda card: card_window(card, situation.driver_system).last or 10**6)
        new = max(situation.cards, key=lambda card: card_window(card, situation.driver_system).first or Version("0"))
        return [broken("no-common-driver", candidate, old=old.name, last=window.last, new=new.name, first=window.first)]
    if situation.driver is None:
        return []
    found: list[Rejection] = []
    for card in situation.cards:
        own = card_window(card, situation.driver_system)
        if own.too_new(situation.driver):
            found.append(
                broken("card-driver-too-new", candidate, driver=situation.driver, card=card.name, last=own.last)
            )
        elif own.too_old(situation.driver):
            found.append(
                broken("card-driver-too-old", candidate, driver=situation.driver, card=card.name, first=own.first)
            )
    return found


def drive(toolkit: Toolkit, situation: Situation, window: Window, candidate: Candidate) -> Driving | Rejection:
    """How the driver runs what this toolkit makes, or why it does not."""
    full = toolkit.full_driver(situation.driver_system)
    floor = toolkit.minor_floor(situation.driver_system) or full
    if full is None or floor is None:
        return broken("driver-too-old", candidate, row=toolkit, driver="?", cuda=toolkit.version, need="?")
    if window.last is not None and drivers.branch_of(floor) > window.last:
        card = _ending_with(situation, window.last)
        return broken(
            "driver-branch",
            candidate,
            row=toolkit,
            cuda=toolkit.version,
            need=spelled(floor),
            last=window.last,
            card=card.name,
        )
    if situation.driver is not None and situation.driver < floor:
        return broken(
            "driver-too-old",
            candidate,
            row=toolkit,
            driver=situation.driver,
            cuda=toolkit.version,
            need=spelled(floor),
        )
    reachable = window.last is None or drivers.branch_of(full) <= window.last
    jit = reachable if situation.driver is None else situation.driver >= full
    need = max(floor, window.first) if window.first else floor
    return Driving(
        need=need,
        full=full,
        jit=jit,
        # A driver that is known and runs native code only meets what it has to meet, not what a fresh one would.
        text=_text(max(full, need) if reachable and jit else need, window.last),
        detail=_detail(toolkit, situation.driver_system, full, need, window.last, reachable),
    )


def spelled(driver: Version) -> str:
    """NVIDIA names only the branch of some: `R580`."""
    return str(driver) if "." in driver.text else f"R{driver}"


def _text(need: Version, last: int | None) -> str:
    """`525.60.13 or newer`; for a card whose drivers have ended, `R470, 450.80.02 or newer`."""
    if last is not None and drivers.branch_of(need) == last:
        return f"R{last} ({spelled(need)} or newer)" if "." in need.text else f"R{last}"
    return f"{spelled(need)} or newer" + (f", up to R{last}" if last is not None else "")


def _detail(toolkit: Toolkit, system: str, full: Version, need: Version, last: int | None, reachable: bool) -> str:
    if not reachable:
        return f"R{last}, {spelled(need)} or newer (by minor-version compatibility: native code only, no JIT)"
    upto = f", up to R{last}" if last is not None else ""
    latest = toolkit.min_drivers[-1] if toolkit.min_drivers else None
    newest = (latest.windows if system == "windows" else latest.linux) if latest else None
    if newest is not None and newest > max(full, need):
        upto = f" ({newest} with its last update){upto}"
    less = f" ({spelled(need)} by minor-version compatibility)" if need < full else ""
    return f"{spelled(max(full, need))} or newer{upto}{less}"


def _ending_with(situation: Situation, last: int) -> Card:
    ending = (card for card in situation.cards if card_window(card, situation.driver_system).last == last)
    return next(ending, situation.cards[0])
