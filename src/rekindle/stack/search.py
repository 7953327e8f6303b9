"""The cheapest way, over everything that a person can change: the driver, a card, the system, what was asked for.

A way is a route and what has to be changed before it can be gone. It costs minutes: those of the route, of the changes,
and those that its losses are worth, all from `builds/estimates.toml`. Single changes are tried wherever something would
have to be built, pairs where the cheapest way so far takes longer than half an hour.

PyTorch without a GPU is the cheaper answer where every card computes about as much as the processor beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from rekindle.compat.companion import release_for
from rekindle.compat.torch_python import releases_for
from rekindle.core.command import pip_install, rekindle
from rekindle.core.version import Version
from rekindle.knowledge.builds import costs
from rekindle.knowledge.tables import cached_questions
from rekindle.knowledge.torch import companions, releases
from rekindle.model.cuda_line import index_of
from rekindle.model.torch_pin import CPU
from rekindle.stack import estimates
from rekindle.stack.candidates import READY, against_place, candidates, is_ready, ranked
from rekindle.stack.driver import card_window
from rekindle.stack.nearest_change import Trial, nearest, trials
from rekindle.stack.prebuilt import driver_page
from rekindle.stack.route import (
    Change,
    Missing,
    OtherWay,
    Route,
    choose_python,
    environment_pip,
    environment_steps,
    numpy_pin,
    python_missing,
)
from rekindle.stack.rules import Candidate, Effect, Rejection, RouteKind, broken
from rekindle.stack.situation import Prefer, Situation, Wish, place_words

_PAIRS_FROM = 30
_HOUR = 60
_MOST = 2
_NEVER = float("inf")


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A route after the changes that it names. `first`: it may be the first answer; `asked`: it is what was asked."""

    route: Route
    situation: Situation
    minutes: float
    first: bool = True
    asked: bool = True
    administrator: bool = False

    @property
    def time(self) -> float:
        """What the clock will show, whatever is lost."""
        return self.route.estimate.minutes if self.route.estimate else _NEVER

    @property
    def torch(self) -> Version:
        return Version.parse(self.route.torch or "0")


def ways(
    best: Route,
    routes: Sequence[Route],
    rejections: Sequence[Rejection],
    situation: Situation,
    wish: Wish,
) -> list[Way]:
    """`best` as it is, what is ready-made and loses something, and what a change opens."""
    found = [_way(best, situation, rejections, complete=True)]
    found += [_way(each, situation, rejections) for each in routes if each is not best and _offered(each)]
    if is_ready(best):
        # Nothing to be spared: only what another driver or another Python would open is worth a word.
        open_ = [each for each in routes if is_ready(each) and (each.python != best.python or wish.extensions)]
        others = [_way(each, situation, rejections) for each in open_]
        return [*found, *(way for way in (*_driven(situation, wish), *others) if way.torch > found[0].torch)]
    found += _on_the_processor(situation, wish)
    for step in (*_without_a_card(situation, wish), *trials(situation, wish)):
        found += _after((step,), wish) if costs.change(step.what) else ()
    return [*found, *(_pairs(situation, wish) if _cheapest(found).minutes > _PAIRS_FROM else ())]


def after_all(situation: Situation, wish: Wish) -> Way | None:
    """Nothing works as it is: the cheapest way after a change of what is there, not of what was asked for."""
    steps = [(step,) for step in _without_a_card(situation, wish)]
    found = _driven(situation, wish, ready=False)
    found += [way for step in steps for way in _after(step, wish, ready=False)]
    found = [each for each in found or _pairs(situation, wish) if each.first]
    # A release that was asked for, and that no build of it brings to the card.
    found += _on_the_processor(situation, wish) if wish.torch and not against_place(situation, wish) else ()
    return _cheapest(found) if found else None


def _on_the_processor(situation: Situation, wish: Wish) -> Iterator[Way]:
    """Beside a card that computes little."""
    if (route := instead(situation, wish)) is not None:
        alone = Way(route=route, situation=situation, minutes=0)
        yield msgspec.structs.replace(alone, minutes=alone.time + (costs.loss(LOSS) or 0))


def _driven(situation: Situation, wish: Wish, *, ready: bool = True) -> list[Way]:
    steps = [step for step in trials(situation, wish) if step.what == "driver"]
    return [way for step in steps for way in _after((step,), wish, ready=ready)]


def _pairs(situation: Situation, wish: Wish) -> list[Way]:
    return [
        way
        for step in _without_a_card(situation, wish)
        for other in trials(step.situation, wish)
        if other.what == "driver"
        for way in _after((step, other), wish)
    ]


def choose(found: Sequence[Way], wish: Wish) -> Way:
    """`found` begins with what loses nothing and changes nothing; a preference that was said keeps to that."""
    free = wish.prefer in (Prefer.CHEAPEST, Prefer.NO_ADMIN) and not is_ready(found[0].route)
    return _cheapest(found) if free else found[0]


def allowed(found: Sequence[Way], wish: Wish) -> Sequence[Way]:
    """Without what only an administrator can do, for who said that there is none."""
    return found if wish.prefer is not Prefer.NO_ADMIN else [each for each in found if not each.administrator]


def alternatives(first: Way, found: Sequence[Way]) -> tuple[OtherWay, ...]:
    """At most two others, each better than the first in something."""
    others = [each for each in found if each.route is not first.route]
    asked = [each for each in others if each.asked]
    wins: dict[int, list[str]] = {}
    for what, better in (
        ("quickest", [each for each in others if each.time < first.time]),
        ("nothing to change", [each for each in asked if first.route.change and not each.route.change]),
        ("loses nothing", [each for each in asked if first.route.loses and not each.route.loses]),
        ("loses nothing and is ready-made", [each for each in others if first.route.loses and is_ready(each.route)]),
        ("newest", [each for each in others if each.torch > first.torch]),
    ):
        if what == "newest":
            best = max(better, key=lambda each: (each.torch, -each.minutes), default=None)
        else:
            best = min(better, key=_price, default=None)
        if best is not None:
            wins.setdefault(others.index(best), []).append(what)
    return tuple(
        OtherWay(wins=", ".join(what), route=others[index].route) for index, what in list(wins.items())[:_MOST]
    )


def _offered(route: Route) -> bool:
    """What has something for it beside a route that loses nothing: it is ready-made, or Linux inside Windows."""
    return route.consent and (route.route is RouteKind.WSL or (route.route in READY and bool(route.loses)))


def _way(route: Route, situation: Situation, rejections: Sequence[Rejection], *, complete: bool = False) -> Way:
    lost = _lost(route, rejections)
    alone = Way(route=route, situation=situation, minutes=0)
    return msgspec.structs.replace(
        alone,
        minutes=alone.time + (lost or 0),
        first=complete or (lost is not None and _used(route.python, situation)),
        administrator=route.route is RouteKind.WSL,
    )


def _used(python: str | None, situation: Situation) -> bool:
    """Is it the Python that is there, or one that people still take?"""
    return python is not None and (python == situation.python or costs.still_used(python))


def _lost(route: Route, rejections: Sequence[Rejection]) -> int | None:
    """What its losses are worth; None: too much."""
    if not route.loses:
        return 0
    said = {each.sentence: each.rule for each in rejections if each.kind is Effect.COSTS}
    worth = [costs.loss(said[loss]) if loss in said else None for loss in route.loses]
    return None if None in worth else sum(each or 0 for each in worth)


def _price(way: Way) -> tuple[float, int, int]:
    """Of two that take as long the newer release."""
    return way.minutes, -way.torch.major, -way.torch.minor


def _cheapest(found: Sequence[Way]) -> Way:
    """An administrator is not called for where something else is done within the hour."""
    may = [each for each in found if each.first]
    alone = any(each.minutes < _HOUR and not each.administrator for each in may)
    return min(may, key=lambda each: (alone and each.administrator, *_price(each)))


def _without_a_card(situation: Situation, wish: Wish) -> Iterator[Trial]:
    """The others alone, where one card keeps them from what is ready-made."""
    for card in situation.cards if len(situation.cards) > 1 else ():
        rest = tuple(each for each in situation.cards if each is not card)
        what = "display-card" if card.few_cores else "card"
        alone = msgspec.structs.replace(situation, cards=rest)
        yield Trial(what=what, text=f"leave {card.name} out", situation=alone, wish=wish, without=card)


def _after(steps: tuple[Trial, ...], asked: Wish, *, ready: bool = True) -> Iterator[Way]:
    """The best route after these changes, with what they take; a ready-made one where there are others."""
    last = steps[-1]
    routes, rejections = routes_of(last.situation, last.wish, ready=ready)
    made = (RouteKind.COMMUNITY,) if last.what == "community" else READY
    open_ = [each for each in routes if each.consent and (not ready or each.route in made)]
    whole = [each for each in open_ if not each.loses] if ready else []
    if not open_:
        return
    if last.what == "torch":
        way = _way(nearest(whole or open_, asked), last.situation, rejections)
    elif ready:
        way = _way((whole or open_)[0], last.situation, rejections)
    else:
        way = choose(ways(open_[0], routes, rejections, last.situation, last.wish), last.wish)
    route = way.route
    rows = [row for step in steps if (row := costs.change(step.what))]
    minutes, administrator = sum(row.minutes for row in rows), any(row.administrator for row in rows)
    text = " and ".join(_text(step, route) for step in steps)
    if minutes and not any(card.guest for card in last.situation.cards):
        text += f" (about {minutes} min{', as an administrator' if administrator else ''})"
    lost = tuple(_unused(step, route, last.situation) for step in steps if step.without is not None)
    changed = msgspec.structs.replace(
        route,
        summary=f"first {text}; then {route.summary}",
        change=Change(what=last.what, text=text, route=route.route, torch=route.torch, cuda=route.cuda),
        loses=(*lost, *route.loses),
        missing=(*(_driver(step, route) for step in steps if step.what == "driver"), *route.missing),
        estimate=route.estimate and route.estimate.longer(*rows),
    )
    if last.what == "community":
        # Its plan says first what nobody has proven of it.
        words = ("--torch", str(route.torch), "--python", str(route.python), *last.wish.words, "--community")
        planning = rekindle("plan", *place_words(last.situation), *words, system=last.situation.system)
        changed = msgspec.structs.replace(changed, commands=(planning,))
    yield msgspec.structs.replace(
        way,
        route=changed,
        minutes=way.minutes + minutes,
        first=way.first and all(row.first for row in rows),
        asked=all(row.first for row in rows),
        administrator=administrator,
    )


@cached_questions
def routes_of(
    situation: Situation, wish: Wish, *, ready: bool = False
) -> tuple[tuple[Route, ...], tuple[Rejection, ...]]:
    """Kept: every driver that is asked about, and every release, leads to the same question without it."""
    found, rejections = candidates(situation, wish, ready=ready)
    return tuple(ranked(found, situation, wish)), tuple(rejections)


def _text(step: Trial, route: Route) -> str:
    guest = any(card.guest for card in step.situation.cards)
    driver = f"have the host's vGPU software updated to a guest driver {route.driver}"
    said = {
        "driver": driver if guest else f"install the driver {route.driver}",
        "torch": f"take PyTorch {route.version} instead",
        "cuda": f"take CUDA {route.cuda} instead",
        "needs": f"do without {', '.join(step.given_up)}",
        "community": f"trust {route.builder}, who built it, and repair and verify it",
    }
    return said.get(step.what) or step.text


def _driver(step: Trial, route: Route) -> Missing:
    guest = any(card.guest for card in step.situation.cards)
    return Missing(what="driver", need=str(route.driver), have=step.had, commands=() if guest else driver_page())


def _unused(step: Trial, route: Route, situation: Situation) -> str:
    """A card that is left out, and may be without a driver too."""
    assert step.without is not None
    last = card_window(step.without, situation.driver_system).last
    said = f"{step.without.name} is not used"
    needed = Version.find(route.driver or "")
    if last is None or needed is None or needed.major <= last:
        return said
    return f"{said}, and that driver does not drive it: R{last} is its last"


LOSS = "small-card"


def small_cards(situation: Situation) -> list[str]:
    """For the notes: a card that computes little, and what there is instead, whatever the route is."""
    plain = pip_install(["torch"], index_url=index_of(CPU), system=situation.system)
    return [
        f"{card.name} has at most {card.few_cores} cores: PyTorch on the processor is often as fast (`{plain}`)"
        for card in situation.cards
        if card.few_cores
    ]


def at_once(situation: Situation, wish: Wish, routes: Iterable[Route]) -> list[str]:
    """The same beside hours of building, where nothing ready-made is for the card."""
    demands = wish.torch or wish.cuda or wish.needs
    if demands or small_cards(situation) or any(route.route.ready_made for route in routes):
        return []
    plain = pip_install(["torch"], index_url=index_of(CPU), system=situation.system)
    return [f"nothing ready-made is known for the card; on the processor PyTorch works at once: `{plain}`"]


def instead(situation: Situation, wish: Wish) -> Route | None:
    """The wheel for the processor; None where a card is worth the build, or somebody asks for what only a GPU has."""
    if wish.cuda is not None or wish.needs or not all(card.few_cores for card in situation.cards):
        return None
    every = [release for release in reversed(releases.torch_releases()) if wish.version_of(release)]
    if not every:
        return None
    mine = releases_for(situation.python or "", situation.system)
    release = next((each for each in every if each in mine), every[0])
    torch = str(wish.version_of(release))
    choice = choose_python(situation, release.wheels_for(torch, situation.system), f"PyTorch {torch}")
    beside = {name: found for name in companions.PROJECTS if (found := release_for(name, torch))}
    # Without `+cpu`: that index holds nothing else, and not all of its files are called so.
    pins = tuple(f"{name}=={version}" for name, version in {"torch": torch, **beside}.items())
    candidate = Candidate(name=f"torch {torch}+{CPU}", route=RouteKind.CPU_WHEEL, torch=torch)
    numpy = numpy_pin(torch, situation.system)
    index = index_of(CPU)
    return Route(
        route=RouteKind.CPU_WHEEL,
        torch=torch,
        variant=CPU,
        python=choice.python,
        index_url=index,
        torchvision=beside.get("torchvision"),
        torchaudio=beside.get("torchaudio"),
        numpy=numpy,
        requirements=pins,
        commands=(
            *environment_steps(situation, choice),
            *([environment_pip(situation, choice, "install", numpy)] if numpy else []),
            environment_pip(situation, choice, "install", *pins, "--index-url", index),
        ),
        loses=tuple(broken(LOSS, candidate, card=card.name, cores=card.few_cores).sentence for card in situation.cards),
        evidence=release.evidence,
        summary=f"PyTorch {torch} for the processor: ready in minutes, and often as fast as this card",
        why=(choice.why,) if choice.why else (),
        missing=python_missing(situation, choice),
        estimate=estimates.ready_made(RouteKind.CPU_WHEEL, situation.system),
    )
