"""Nothing works: the smallest change that would open a route, and the route it would open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from rekindle.core.command import pip_install, rekindle
from rekindle.core.version import Version
from rekindle.knowledge.gpu import drivers
from rekindle.knowledge.gpu.jetson import jetpacks
from rekindle.knowledge.tables import cached_questions
from rekindle.knowledge.torch import releases
from rekindle.model.cuda_line import index_of
from rekindle.model.torch_pin import CPU
from rekindle.stack.candidates import Ranked, candidates, ranked
from rekindle.stack.driver import window_of
from rekindle.stack.extensions import without_code
from rekindle.stack.offers import Offer
from rekindle.stack.route import Change, Route
from rekindle.stack.rules import Rejection, RouteKind, rule
from rekindle.stack.situation import Card, Prefer, Situation, Wish, place_words

LIST_OF_WHEELS = "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/index.html"
"""Where NVIDIA lists its wheels for Jetson."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One thing let go of."""

    what: str
    text: str
    situation: Situation
    wish: Wish
    had: str | None = None
    """What is there instead."""
    without: Card | None = None
    """The card that is left out."""
    given_up: tuple[str, ...] = ()


def smallest_change(
    situation: Situation, wish: Wish, shelf: Sequence[Offer], rejections: Sequence[Rejection] = ()
) -> Change:
    """Relax one thing at a time, the easiest first, until a route opens."""
    fixed = next((each for each in rejections if each.candidate.is_any and rule(each.rule).instead), None)
    if fixed is not None:
        return Change(what="place", text=rule(fixed.rule).instead, route=RouteKind.NONE)
    alone = wish.prefer is Prefer.NO_ADMIN
    for trial in sorted(trials(situation, wish), key=lambda each: alone and each.what == "driver"):
        where = (trial.situation, trial.wish)
        found = candidates(*where, shelf)[0] if shelf else _without_shelf(*where)
        usable = [each for each in found if each.route.consent]
        if usable:
            routes = ranked(usable, trial.situation, trial.wish)
            best = nearest(routes, wish) if trial.what == "torch" else routes[0]
            return _change(trial, best)
    if not situation.cards:
        return Change(what="card", text='name one, e.g. `--gpu "Tesla K40c"`', route=RouteKind.NONE)
    if len(situation.cards) > 1:
        apart = any(each.rule in ("no-common-driver", "no-common-modules") for each in rejections)
        how = "one card at a time" if apart else "separate environments"
        text = (apart and _without_one(situation, wish, shelf)) or f"use {how}: {_apart(situation, wish, shelf)}"
        return Change(what="card", text=text, route=RouteKind.NONE)
    board = next((card for card in situation.cards if card.jetson), None)
    if board is not None and jetpacks(board.jetson or ""):
        text = f"a JetPack of that list; {LIST_OF_WHEELS} says whether yours has a wheel since"
        return Change(what="place", text=text, route=RouteKind.NONE)
    without = pip_install(["torch"], index_url=index_of(CPU), system=situation.system)
    return Change(what="card", text=f"another card; PyTorch without a GPU is `{without}`", route=RouteKind.NONE)


@cached_questions
def _without_shelf(situation: Situation, wish: Wish) -> list[Ranked]:
    """Kept: for every driver that is too old, the question without a driver is the same."""
    return candidates(situation, wish)[0]


def _change(trial: Trial, best: Route) -> Change:
    words = {
        "driver": best.driver,
        "toolset": best.toolset,
        "cuda": best.cuda,
        "builder": best.builder,
        "torch": best.version,
        "python": best.python,
    }
    text = trial.text.format(**words)
    if trial.what == "driver":
        text += _package(trial.situation, best)
    instead = best.commands if trial.what in ("torch", "extensions") and best.route.ready_made else ()
    return Change(what=trial.what, text=text, route=best.route, torch=best.torch, cuda=best.cuda, commands=instead)


def _package(situation: Situation, best: Route) -> str:
    """How such a driver is installed and held where it is known whose packages are meant."""
    last = window_of(situation).last
    if situation.distribution is None or last is None:
        return ""
    row = next(iter(drivers.packages(last, situation.driver_system, situation.distribution)), None)
    return f"; install it with `{'; '.join((*row.install, *row.hold))}`" if row else ""


def nearest(routes: Sequence[Route], wish: Wish) -> Route:
    """The release that is nearest to the one asked for: the oldest that is newer, else the newest that is older.

    A ready-made one comes before a build, however near.
    """
    asked = _asked(wish)
    if asked is None:
        return routes[0]
    cheapest = min(route.route.tier for route in routes)
    usual = [route for route in routes if route.route.tier == cheapest and not route.loses] or routes
    newer = [route for route in usual if Version.parse(route.torch or "0") >= asked]
    if newer:
        return min(newer, key=lambda route: Version.parse(route.torch or "0"))
    return max(usual, key=lambda route: Version.parse(route.torch or "0"))


def _asked(wish: Wish) -> Version | None:
    """The release that was asked for; of a range the newest in it."""
    versions = [version for row in releases.torch_releases() if (version := wish.version_of(row))]
    return max(map(Version, versions), default=_before_the_tables(wish))


def _before_the_tables(wish: Wish) -> Version | None:
    """The release that was asked for, where it is older than those of the tables."""
    asked = Version.find(wish.torch or "") if (wish.torch or "x")[0].isdigit() else None
    return asked if asked is not None and asked < Version(releases.torch_releases()[0].minor) else None


def trials(situation: Situation, wish: Wish) -> Iterator[Trial]:
    """What can be let go of, the easiest first."""

    def trial(what: str, text: str, where: Situation = situation, **changed: object) -> Trial:
        return Trial(what=what, text=text, situation=where, wish=msgspec.structs.replace(wish, **changed))

    if situation.driver is not None or situation.no_driver:
        free = msgspec.structs.replace(situation, driver=None, driver_note=None, no_driver=False)
        had = str(situation.driver) if situation.driver else None
        yield Trial(what="driver", text="a different driver: {driver}", situation=free, wish=wish, had=had)
    if wish.toolset is not None:
        yield trial("toolset", "a different MSVC toolset: {toolset}", toolset=None)
    if wish.configured_index:
        yield trial("index", "PyTorch's own package index: leave out `--configured-index`", configured_index=False)
    if wish.cuda is not None:
        yield trial("cuda", "a different CUDA: {cuda}", cuda=None)
    if not wish.community:
        yield trial("community", "a wheel by {builder}, with `--community`", community=True)
    if wish.torch is not None or wish.torchvision is not None:
        # The early wheels are offered only where they are asked for.
        early = _before_the_tables(wish)
        other = f">={early}" if early else None
        text = "a different PyTorch: {torch}, the nearest to the one asked for"
        yield trial("torch", text, torch=other, torchvision=None, cuda=None)
    if wish.needs:
        free_wish = msgspec.structs.replace(wish, needs=())
        text = "a program that does without it"
        yield Trial(what="needs", text=text, situation=situation, wish=free_wish, given_up=wish.needs)
    if wish.extensions:
        own = [f"`{rekindle('extension', 'build', name, system=situation.system)}`" for name in wish.extensions]
        text = f"a build of your own beside torch {{torch}}: {', '.join(own)}"
        kept: tuple[str, ...] = ()
        if unfit := without_code(situation, wish):
            text = f"a program that does without {' and '.join(unfit)}"
            kept = tuple(name for name in wish.extensions if name not in unfit)
        yield trial("extensions", text, extensions=kept)
    if situation.system == "windows":
        yield trial("system", "Linux", msgspec.structs.replace(situation, system="linux", driver=None, no_driver=False))


def _without_one(situation: Situation, wish: Wish, shelf: Sequence[Offer]) -> str:
    """Of three cards and more: which one keeps the others from a PyTorch; empty where none does alone."""
    said: list[str] = []
    for card in situation.cards if len(situation.cards) > 2 else ():
        rest = tuple(each for each in situation.cards if each is not card)
        if answer := _gets(rest, situation, wish, shelf)[0]:
            said.append(f"without {card.name} the others get {answer}")
    return f"leave one card out: {'; '.join(said)}" if said else ""


def _apart(situation: Situation, wish: Wish, shelf: Sequence[Offer]) -> str:
    """What each card would get alone."""
    said: list[str] = []
    for card in {card.name: card for card in situation.cards}.values():
        answer, alone = _gets((card,), situation, wish, shelf)
        asked = rekindle("plan", *place_words(alone), *wish.words, system=situation.system)
        said.append(f"{card.name} alone gets {answer or 'nothing'} (`{asked}`)")
    return "; ".join(said)


def _gets(cards: tuple[Card, ...], situation: Situation, wish: Wish, shelf: Sequence[Offer]) -> tuple[str, Situation]:
    """With the driver that is there; with another where that one serves none of them. And where that was asked."""
    here = msgspec.structs.replace(situation, cards=cards, here=False, recorded=None)
    free = msgspec.structs.replace(here, driver=None, no_driver=False)
    for alone in (here, free):
        found, _ = candidates(alone, wish, shelf)
        if best := next((route for route in ranked(found, alone, wish) if route.consent), None):
            return f"{best.route.value} torch {best.version} on driver {best.driver}", alone
    return "", free
