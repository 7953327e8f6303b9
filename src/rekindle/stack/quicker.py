"""Where the best route takes hours of building: the quickest ready-made one that a single change would open.

The changes are those that a person can make: another driver, one card fewer, an older release, doing without what a
ready-made build lacks. Each costs what `builds/estimates.toml` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.builds import efforts
from rekindle.knowledge.tables import cached
from rekindle.stack.candidates import candidates
from rekindle.stack.ranking import READY, ranked
from rekindle.stack.route import Change, Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Prefer, Situation, Wish


def quicker(best: Route, routes: Sequence[Route], situation: Situation, wish: Wish) -> Route | None:
    """None where nothing has to be built, or nothing is quicker."""
    if best.route is not RouteKind.SOURCE_BUILD or wish.prefer is Prefer.COMPLETE:
        return None
    found = [*_as_it_is(best, routes), *_with_a_driver(best, situation, wish), *_without_a_card(situation, wish)]
    found = [each for each in found if _minutes(each) < _minutes(best)]
    return min(found, key=lambda each: (_older(each, best), _minutes(each)), default=None)


def _as_it_is(best: Route, routes: Sequence[Route]) -> Iterator[Route]:
    """Ready-made, and it loses something or is older."""
    ready = [each for each in routes if each.route in READY and each.consent]
    newest = max(ready, key=lambda each: Version.parse(each.torch or "0"), default=None)
    if newest is None:
        return
    if _older(newest, best):
        less = f"PyTorch {newest.torch} instead of {best.torch}"
        newest = msgspec.structs.replace(newest, loses=(less, *newest.loses))
    yield newest


def _with_a_driver(best: Route, situation: Situation, wish: Wish) -> Iterator[Route]:
    if situation.driver is None:
        return
    free = msgspec.structs.replace(situation, driver=None, driver_note=None)
    route = _ready(free, wish)
    if route is not None and not _older(route, best):
        text = f"update the driver to {route.driver}"
        yield _after("driver", text, route)


def _without_a_card(situation: Situation, wish: Wish) -> Iterator[Route]:
    """The others alone, where one card keeps them from what is ready-made."""
    if len(situation.cards) < 2:
        return
    for card in situation.cards:
        rest = tuple(each for each in situation.cards if each is not card)
        route = _ready(msgspec.structs.replace(situation, cards=rest), wish)
        if route is not None:
            lost = f"{card.name} is not used"
            yield _after("card", f"leave {card.name} out", msgspec.structs.replace(route, loses=(lost, *route.loses)))


@cached
def _ready(situation: Situation, wish: Wish) -> Route | None:
    routes = ranked(candidates(situation, wish)[0], situation, wish)
    return next((each for each in routes if each.consent and each.route in READY and not each.loses), None)


def _after(what: str, text: str, route: Route) -> Route:
    """The route with what has to be changed before, and the time that takes."""
    row = efforts.change(what)
    if row.minutes:
        text += f" (about {row.minutes} min{', as an administrator' if row.administrator else ''})"
    change = Change(what=what, text=text, route=route.route, torch=route.torch, cuda=route.cuda)
    guess = route.estimate
    if guess is not None:
        guess = msgspec.structs.replace(guess, minutes=guess.minutes + row.minutes)
    return msgspec.structs.replace(route, change=change, estimate=guess)


def _minutes(route: Route) -> float:
    return route.estimate.minutes if route.estimate else float("inf")


def _older(route: Route, best: Route) -> bool:
    return Version.parse(route.torch or "0") < Version.parse(best.torch or "0")
