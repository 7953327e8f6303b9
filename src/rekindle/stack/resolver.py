"""From a situation and a wish to the cheapest route that works, with every other candidate and why it is out: the one
reason that decides is told in words.

The owner of a card that new official wheels have left behind (an older release's wheel has code for it, none of the
newest release has) is told more than tonight's command: what not to let an update do, and how newer releases are still
to be had.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rekindle.compat import driver_cuda
from rekindle.compat.feature_card import has
from rekindle.compat.judgement import Fits
from rekindle.compat.old_wheels import old_wheels_line
from rekindle.compat.torch_python import takes
from rekindle.core import codec
from rekindle.core.command import Command, rekindle
from rekindle.core.version import Version
from rekindle.knowledge.gpu import capabilities, gpus, names
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.tables import cached
from rekindle.knowledge.torch import projects, releases
from rekindle.knowledge.torch.torch_wheels import old_wheels
from rekindle.knowledge.torch.wheel_platforms import is_managed
from rekindle.model.card import Capability
from rekindle.stack.candidates import Ranked, candidates, ranked
from rekindle.stack.driver import unlisted, window_of
from rekindle.stack.nearest_change import smallest_change
from rekindle.stack.offers import Offer
from rekindle.stack.route import FOLDER, AnswerFor, Change, NextStep, Route, Verdict, lacks
from rekindle.stack.rules import Effect, Rejection, RouteKind
from rekindle.stack.search import Way, after_all, allowed, alternatives, at_once, choose, routes_of, small_cards, ways
from rekindle.stack.situation import SYSTEMS, Prefer, Situation, Wish, place_words
from rekindle.stack.source_build import complete


def resolve(situation: Situation, wish: Wish, shelf: Sequence[Offer] = (), *, as_it_is: bool = False) -> Verdict:
    """The verdict for this situation and wish. `shelf` are the wheels the user has built or collected.

    `as_it_is`: nothing may be changed or lost, and nobody reads the advice.
    """
    if any(card.ambiguous for card in situation.cards):
        return _for_each_chip(situation, wish, shelf, as_it_is=as_it_is)
    found, rejections = candidates(situation, wish, shelf)
    if not any(each.route.consent for each in found):
        way = None if as_it_is else after_all(situation, wish)
        if way is not None and allowed((way,), wish):
            return _changed(way, situation, wish, rejections)
        return _none(situation, wish, shelf, found, rejections)
    routes = ranked(found, situation, wish)
    best = next(each for each in routes if each.consent)
    if as_it_is:
        return Verdict(
            situation=situation,
            wish=wish,
            recommended=best,
            routes=tuple(routes),
            rejections=tuple(rejections),
            missing=best.missing,
        )
    every = ways(best, routes, rejections, situation, wish)
    found_ways = allowed(every, wish) or every
    chosen = choose(found_ways, wish)
    if chosen.route.route is not RouteKind.SOURCE_BUILD:
        routes = [complete(route) for route in routes]
        found_ways = [msgspec.structs.replace(way, route=complete(way.route)) for way in found_ways]
    first = chosen.route
    here = msgspec.structs.replace(situation, cards=chosen.situation.cards)
    return Verdict(
        notes=(*_notes(situation, wish, first), *at_once(situation, wish, (way.route for way in found_ways))),
        situation=here,
        wish=wish,
        recommended=first,
        alternatives=alternatives(chosen, found_ways) if wish.prefer is not Prefer.COMPLETE else (),
        routes=tuple(routes),
        rejections=tuple(rejections),
        missing=first.missing,
        decisive=why_not_newest(first, wish, rejections, routes),
        outlook=next_steps(here, wish, first, routes),
    )


def managed(situation: Situation, best: Route) -> list[str]:
    """Where the Python of the system refuses the lines that are printed."""
    name = situation.system_name or ("Ubuntu 24.04" if situation.wsl else None)  # what `wsl --install` brings
    if (
        not name
        or situation.here
        or not is_managed(name)
        or not any(str(each).startswith("pip ") for each in best.commands)
    ):
        return []
    made = f"`python3 -m venv {FOLDER}`, then `{FOLDER}/bin/pip` in place of `pip`"
    return [f"{name}'s own Python takes nothing from pip: outside of an environment make one, {made}"]


def _notes(situation: Situation, wish: Wish, best: Route) -> tuple[str, ...]:
    """What was assumed, where the data ends, and how several cards are told apart."""
    small = () if best.route is RouteKind.CPU_WHEEL else small_cards(situation)
    found = [*_assumed(situation), *small, *several_cards(situation, best)]
    if best.route is RouteKind.SOURCE_BUILD and wish.torch is None and situation.system == "linux":
        opened = f"official Linux wheels before 1.10 ({len(old_wheels())} opened)"
        found += [
            f"{opened} with code for {one}: {old_wheels_line(one)}" for one in sorted(set(situation.capabilities))
        ]
    found += managed(situation, best)
    if situation.jetpack and best.route is RouteKind.OFFICIAL_WHEEL:
        found.append("the driver of a JetPack comes with it and is meant here; its `nvidia-smi` shows 580.00")
    if situation.driver is None:
        return tuple(found)
    if driver_cuda.is_newer_than_tables(situation.driver):
        found.append(f"driver {situation.driver} is newer than Rekindle's data: taken as the newest it knows")
    return tuple(found)


def _for_each_chip(situation: Situation, wish: Wish, shelf: Sequence[Offer], *, as_it_is: bool) -> Verdict:
    """A name that stands for several chips: the answer if all agree, else each answer and how to find out."""
    unsure = next(card for card in situation.cards if card.ambiguous)
    each = [resolve(alone, wish, shelf, as_it_is=as_it_is) for alone in situation.each_chip()]
    answers = list(zip(unsure.capabilities, each, strict=True))
    candidates = tuple(
        codec.like(AnswerFor, verdict.recommended, capability=capability) for capability, verdict in answers
    )
    first = each[0]
    if len({(one.recommended.route, one.recommended.version, one.recommended.commands) for one in each}) == 1:
        note = f"the answer is the same for every chip that {unsure.name} may have"
        shared = tuple(line for line in first.recommended.lacks if all(line in one.recommended.lacks for one in each))
        return msgspec.structs.replace(
            first,
            situation=situation,
            candidates=candidates,
            notes=(*first.notes, note),
            recommended=msgspec.structs.replace(first.recommended, lacks=shared),
            outlook=tuple(step for step in first.outlook if all(step in one.outlook for one in each)),
        )
    named = gpus.find(unsure.name)  # of several cards: which one is meant has to be said
    change = Change(what="card", text=gpus.which_chip(named), route=RouteKind.NONE)
    return Verdict(
        situation=situation,
        wish=wish,
        notes=tuple(small_cards(situation)),
        recommended=Route(route=RouteKind.NONE, summary=gpus.several_chips(named), change=change),
        routes=(),
        rejections=tuple(rejection for _, verdict in answers for rejection in verdict.rejections),
        missing=(),
        candidates=candidates,
    )


def _changed(way: Way, situation: Situation, wish: Wish, rejections: list[Rejection]) -> Verdict:
    """Nothing serves the card as it is, and something does after a change of the machine, or without the card."""
    change = way.route.change
    reason = why_nothing(situation, wish, rejections, change)
    route = msgspec.structs.replace(way.route, why=(reason, *way.route.why))
    return Verdict(
        notes=_notes(situation, wish, way.route),
        situation=msgspec.structs.replace(situation, cards=way.situation.cards),
        wish=wish,
        recommended=route,
        routes=() if change else (route,),
        rejections=tuple(rejections),
        missing=route.missing,
    )


def _none(
    situation: Situation, wish: Wish, shelf: Sequence[Offer], found: list[Ranked], rejections: list[Rejection]
) -> Verdict:
    """Nothing works: the reason in a sentence, and the smallest change that would help."""
    change = smallest_change(situation, wish, shelf, rejections)
    route = Route(
        route=RouteKind.NONE,
        summary=why_nothing(situation, wish, rejections, change),
        change=change,
        lacks=lacks(situation),
    )
    return Verdict(
        notes=(*_assumed(situation), *_from_others(situation, wish)),
        situation=situation,
        wish=wish,
        recommended=route,
        routes=tuple(ranked(found, situation, wish)),
        rejections=tuple(rejections),
        missing=(),
    )


def _assumed(situation: Situation) -> list[str]:
    """How names, processor and driver were read: said whether or not anything works."""
    found = [note for card in situation.cards for note in (*card.notes, names.slowed(card.name)) if note]
    oldest = releases.torch_releases()[0]
    if situation.python is not None and Version(situation.python.rstrip("t")) < Version(oldest.pythons("linux")[0]):
        found.append(
            f"no PyTorch since {oldest.minor} has a wheel for Python {situation.python}, and none can be built for it: "
            "what follows is for another Python, beside yours"
        )
    found += [
        f"NVIDIA supports CUDA in WSL 2 for Pascal and newer: {card.name} may not work there"
        for card in situation.cards
        if situation.wsl and not has("wsl", max(card.capabilities))
    ]
    if situation.wsl:
        found.append("the driver is that of Windows, and counted as there: install none inside WSL")
    found += [note for note in (situation.arch_note, situation.system_note, situation.driver_note) if note]
    return [*found, *unlisted(situation)]


def _from_others(situation: Situation, wish: Wish) -> list[str]:
    """Other people's work that gives the cards what stock PyTorch does not. Rekindle has built none of it."""
    return [
        f"not with stock PyTorch, but {row.offers} ({row.link}, {row.evidence.value} evidence, UNVERIFIED here): "
        + "; ".join((*row.needs, row.trust))
        for need in wish.needs
        for row in projects.bringing(need, situation.capabilities, situation.system)
    ]


def several_cards(situation: Situation, route: Route) -> list[str]:
    """What the owner of several cards has to know: which device is which, and how they talk to each other."""
    every = [card for card in situation.cards for _ in range(card.count)]
    if len(every) < 2 or route.route in (RouteKind.NONE, RouteKind.CPU_WHEEL):
        return []
    found: list[str] = []
    if len({card.name for card in every}) > 1:
        order = ", ".join(f"{index} is {card.name}" for index, card in enumerate(every[:8]))
        found.append(
            "CUDA numbers cards by speed and nvidia-smi by slot: set CUDA_DEVICE_ORDER=PCI_BUS_ID, then "
            f"CUDA_VISIBLE_DEVICES=N chooses one (in the order given here, {order})"
        )
    if situation.system == "windows" and route.route is not RouteKind.WSL:
        found.append("this build has no NCCL: on Windows several cards train together with `gloo` only")
    elif route.route in (RouteKind.OFFICIAL_WHEEL, RouteKind.CONDA_FORGE, RouteKind.WSL):
        without = [card.name for card in situation.cards if not has("nccl", min(card.capabilities))]
        if without:
            found.append(f"NCCL has no code for {without[0]}: several cards train together with `gloo` only")
        elif any(card.slice for card in situation.cards):
            found.append("slices of a card (MIG): a process uses one of them; NCCL between slices is experimental")
        else:
            found.append("this build has NCCL, through which several cards train together")
    return found


def next_steps(situation: Situation, wish: Wish, best: Route, routes: Sequence[Route]) -> tuple[NextStep, ...]:
    """What comes after the command; nothing for a card that the newest official wheels serve, or that none ever did.

    `routes` are those of the wish. A card that the newest release cannot be built for is told so elsewhere.
    """
    newest, cards = releases.torch_releases()[-1], tuple(situation.capabilities)
    serving = [row for row in releases.torch_releases() if _has_code(row.minor, situation.system, cards)]
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


@cached
def _has_code(minor: str, system: str, capabilities: tuple[Capability, ...]) -> bool:
    """Some official wheel of the release has code for every card."""
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


_DECIDED_BY = {"driver": "driver-too-old", "toolset": "cuda-msvc"}
"""What stands in the way where another of these would help."""


def why_nothing(situation: Situation, wish: Wish, rejections: Sequence[Rejection], change: Change | None) -> str:
    """Why no PyTorch can be had as it was asked for."""
    if not situation.cards:
        return "no NVIDIA card was found or named"
    whole = next((each for each in rejections if each.candidate.is_any), None)
    if whole:
        return whole.sentence
    if wish.extensions:
        lacking = next((each for each in rejections if each.rule == "package-wheel"), None)
        if lacking and wish.torch is not None:
            return lacking.sentence
        if lacking:
            return f"no PyTorch for this has ready-made wheels of {' and '.join(wish.extensions)}: {lacking.sentence}"
    if wish.cuda is not None:
        about = _about_cuda(wish, rejections)
        if about:
            return about.sentence
    if change is not None and change.what in _DECIDED_BY:
        of_cuda = (each for each in rejections if each.candidate.cuda == change.cuda)
        near = next((each for each in of_cuda if each.rule == _DECIDED_BY[change.what]), None)
        if near:
            return near.sentence
    if wish.torch is not None or wish.torchvision is not None:
        return _no_release(situation, wish, rejections)
    oldest = min(situation.capabilities)
    facts = capabilities.facts(oldest)
    ended = _ended_early(facts.last_cuda, rejections) if facts and facts.last_cuda else None
    if ended:
        return ended.sentence
    card = next(card.name for card in situation.cards if oldest in card.capabilities)
    said = facts.torch.removeprefix("never: ") if facts else "it is not in Rekindle's data"
    asked = f" with CUDA {wish.cuda}" if wish.cuda is not None else ""
    return f"no PyTorch{asked} runs on {card} ({oldest}): {said}"


def _ended_early(last: Version, rejections: Sequence[Rejection]) -> Rejection | None:
    """The card's drivers end before the last CUDA that compiles for it (GRID K2: R367)."""
    return next((each for each in rejections if each.rule == "driver-branch" and each.candidate.cuda == last), None)


def _about_cuda(wish: Wish, rejections: Sequence[Rejection]) -> Rejection | None:
    return next(
        (
            each
            for each in rejections
            if each.candidate.cuda is not None
            and each.candidate.torch is None
            and wish.admits_cuda(each.candidate.cuda)
        ),
        None,
    )


def _no_release(situation: Situation, wish: Wish, rejections: Sequence[Rejection]) -> str:
    """A release that is not available: what its own wheels lack, and why it cannot be built."""
    if early := _first(rejections, ("torch-need",)):
        return early.sentence
    asked = f"PyTorch {wish.torch}" if wish.torch is not None else f"torchvision {wish.torchvision}"
    cards = " and ".join(card.name for card in situation.cards)
    told = [
        _first(rejections, kind)
        for kind in (
            ("wheel-code", "wheel-code-partial", "wheel-jit-driver", "wheel-unknown"),
            ("torch-arch-syntax", "torch-cuda-max", "torch-cuda-min", "toolkit-target", "cuda-gcc", "cuda-msvc"),
        )
    ]
    reasons = "; ".join(each.sentence for each in told if each is not None)
    return f"{asked} cannot run on {cards}: {reasons}" if reasons else f"{asked} cannot run on {cards}"


def _first(rejections: Sequence[Rejection], rules: tuple[str, ...]) -> Rejection | None:
    return next((each for name in rules for each in rejections if each.rule == name), None)


def why_not_newest(best: Route, wish: Wish, rejections: Sequence[Rejection], routes: Sequence[Route]) -> str | None:
    """Why the recommended release is not the newest, or why one that was asked for has no official wheel; else None."""
    newest = releases.torch_releases()[-1].newest
    if best.route in (RouteKind.SOURCE_BUILD, RouteKind.CONDA_FORGE, RouteKind.WSL) and wish.torch is not None:
        official = (each for each in rejections if each.candidate.route is RouteKind.OFFICIAL_WHEEL)
        wheels = [each for each in official if each.candidate.torch == best.torch]
        chosen = decisive(sorted(wheels, key=lambda each: each.candidate.cuda or Version("0"), reverse=True))
        return f"no official wheel of {best.torch} serves: {chosen.sentence}" if chosen else None
    if best.torch is None or wish.torch is not None or wish.torchvision is not None or best.route is RouteKind.NONE:
        return None
    if Version(best.torch) >= Version(newest):
        return None
    if best.route is RouteKind.INSTALLED:
        able = max((each.torch for each in routes if each.torch), key=Version, default=best.torch)
        newer = Version(able) > Version(best.torch)
        return f"not {able}: what is installed works as it is (`--torch {able}` plans the newer one)" if newer else None
    return _against(_later(best.torch), best, rejections, routes)


def _later(torch: str) -> list[str]:
    """The releases after the recommended one; the first is the one that it stops short of."""
    return [row.newest for row in releases.torch_releases() if Version(row.newest) > Version(torch)]


def _takes(torch: str, python: str | None) -> bool:
    """The release has wheels for this Python, so another one is no reason against it."""
    return any(isinstance(takes(torch, python or "", system), Fits) for system in SYSTEMS)


def _against(later: list[str], best: Route, rejections: Sequence[Rejection], routes: Sequence[Route]) -> str | None:
    version = later[0]
    losing = next((each for each in routes if each.torch == version and each.loses), None)
    if losing is not None:
        return f"not {losing.version}: {losing.loses[0]}"
    same = next((each for each in routes if each.torch == version and each.route is best.route), None)
    if same is not None and same.python != best.python and not _takes(version, best.python):
        return f"not {version}: it needs another Python ({same.python} instead of {best.python})"
    if same is not None:
        strangers = not best.strangers and same.strangers
        but = f"others than the makers built {' and '.join(same.strangers)}" if strangers else "is less tested"
        return f"not {version}: it works by the same route and {but} (`--torch {version}` plans it)"
    # Where no wheel of the next release has the card's code, one of a later release may lack only the driver.
    every = {each: _of_route(best.route, [one for one in rejections if one.candidate.torch == each]) for each in later}
    nearest = next((each for each in later if _with_code(every[each])), version)
    chosen = decisive(every[nearest])
    return f"not {nearest}: {chosen.sentence}" if chosen else None


def _of_route(route: RouteKind, about: list[Rejection]) -> list[Rejection]:
    """What speaks against the same route, else against the official wheel for this platform, else all."""
    kinds = ([each for each in about if each.candidate.route is kind] for kind in (route, RouteKind.OFFICIAL_WHEEL))
    return next((each for each in kinds if each), about)


def _with_code(about: Sequence[Rejection]) -> list[Rejection]:
    """What speaks against those that have the card's code."""
    lost = {each.candidate for each in about if each.rule in ("wheel-code", "wheel-code-partial", "toolkit-target")}
    return [each for each in about if each.candidate not in lost]


def decisive(about: Sequence[Rejection]) -> Rejection | None:
    """The one reason to name, of all against the wheels of a release: that against the one that came closest."""
    # A wheel without the card's code would not be saved by another driver; one that has the code came closer.
    about = _with_code(about) or about
    others = {each.candidate.cuda for each in about if each.rule != "package-wheel" and each.kind is Effect.REJECTS}
    if lacking := [each for each in about if each.rule == "package-wheel" and each.candidate.cuda not in others]:
        return lacking[0]
    order = ("wheel-glibc", "wheel-code", "wheel-code-partial", "driver-branch", "driver-too-old", "torch-python")
    return _first(about, order) or next((each for each in about if each.kind is not Effect.COSTS), None)
