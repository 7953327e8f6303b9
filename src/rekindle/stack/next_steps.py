"""What the owner of a card that new official wheels have left behind should know beyond tonight's command.

Such a card is one for which an official wheel of an older release has code and none of the newest release has: what
to run tonight, what not to let an update do, and how newer releases are still to be had.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rekindle.core.command import Command, rekindle
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.tables import cached
from rekindle.knowledge.torch import releases
from rekindle.model.card import Capability
from rekindle.stack.driver import window_of
from rekindle.stack.route import NextStep, Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.search import routes_of
from rekindle.stack.situation import Situation, Wish, place_words


def next_steps(situation: Situation, wish: Wish, best: Route, routes: Sequence[Route]) -> tuple[NextStep, ...]:
    """What comes after the command; nothing for a card that the newest official wheels serve, or that none ever did.

    `routes` are those of the wish. A card that the newest release cannot be built for is told so elsewhere.
    """
    newest = releases.torch_releases()[-1]
    serving = [row for row in releases.torch_releases() if _served(row, situation)]
    if best.torch is None or not situation.cards or not serving or serving[-1] is newest:
        return ()
    every = routes if wish.torch is None and wish.cuda is None else _unasked(situation, wish)
    if not any(each.torch == newest.newest and each.route is RouteKind.SOURCE_BUILD for each in every):
        return ()
    ready = best if best.route is RouteKind.OFFICIAL_WHEEL else _ready_made(every)
    if ready is None:
        return ()
    last = serving[-1].minor
    said = [_last_line(last, situation) if ready is best else _tonight(ready, situation, wish)]
    if (branch := window_of(situation).last) is not None:
        text = f"R{branch} is the last driver branch for {_those(situation)}: keep updates from replacing it"
        said.append(NextStep(text=text))
    commands = [rekindle("factory", "init", "factory", system=situation.system)]
    if Version(best.torch) < Version(newest.minor):
        commands.insert(0, _plan(situation, "--torch", newest.newest, *wish.words, "-o", "plan.toml"))
    text = f"releases after {last} have to be built: here, or by a repository of yours that signs them; or take them "
    text += "from a shelf that somebody has filled (`--shelf URL`)"
    return (*said, NextStep(text=text, commands=tuple(commands)))


def _last_line(minor: str, situation: Situation) -> NextStep:
    text = f"{minor} is the last line with official wheels for {_those(situation)}: `pip install -U torch` would bring "
    return NextStep(text=f"{text}one without code for it; `rekindle install` pins the one that has it")


def _tonight(ready: Route, situation: Situation, wish: Wish) -> NextStep:
    minutes = f", installed in about {ready.estimate.minutes} min" if ready.estimate else ""
    text = f"for tonight there is an official wheel, torch {ready.version}{minutes}"
    return NextStep(text=text, commands=(_plan(situation, "--torch", str(ready.torch), *wish.words),))


def _served(release: releases.TorchRelease, situation: Situation) -> bool:
    """Some official wheel of the release has code for every card."""
    return _has_code(release.minor, situation.system, tuple(situation.capabilities))


@cached
def _has_code(minor: str, system: str, capabilities: tuple[Capability, ...]) -> bool:
    every = [variant.targets(system) for variant in releases.torch_release(minor).variants]
    return any(
        targets is not None and all(any(runs(target, one) is not Runs.NO for target in targets) for one in capabilities)
        for targets in every
    )


def _unasked(situation: Situation, wish: Wish) -> Sequence[Route]:
    """The routes, had no release been named."""
    return routes_of(situation, msgspec.structs.replace(wish, torch=None, torchvision=None, cuda=None))[0]


def _ready_made(routes: Sequence[Route]) -> Route | None:
    fitting = (each for each in routes if each.route is RouteKind.OFFICIAL_WHEEL and each.consent)
    return next((each for each in fitting if each.change is None), None)


def _plan(situation: Situation, *words: str) -> Command:
    named = not situation.here and situation.recorded is None
    python = ("--python", situation.python) if situation.python and named else ()
    return rekindle("plan", *place_words(situation), *python, *words, system=situation.system)


def _those(situation: Situation) -> str:
    return "this card" if len(situation.cards) == 1 else "these cards"
