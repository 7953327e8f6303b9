"""From a situation and a wish to the cheapest route that works, with every other candidate and why it is out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rekindle.compat import driver_cuda
from rekindle.compat.feature_card import has
from rekindle.compat.old_wheels import old_wheels_line
from rekindle.core import codec
from rekindle.core.version import Version
from rekindle.knowledge.gpu import gpus, names
from rekindle.knowledge.torch import projects, releases
from rekindle.knowledge.torch.torch_wheels import old_wheels
from rekindle.knowledge.torch.wheel_platforms import is_managed
from rekindle.stack import reasons
from rekindle.stack.candidates import candidates
from rekindle.stack.driver import unlisted
from rekindle.stack.nearest_change import smallest_change
from rekindle.stack.next_steps import next_steps
from rekindle.stack.offers import Offer
from rekindle.stack.processor import at_once, small_cards
from rekindle.stack.ranking import Ranked, ranked
from rekindle.stack.route import FOLDER, Change, Route, lacks
from rekindle.stack.rules import Rejection, RouteKind
from rekindle.stack.search import Way, after_all, allowed, alternatives, choose, ways
from rekindle.stack.situation import Prefer, Situation, Wish
from rekindle.stack.source_build import complete
from rekindle.stack.verdict import AnswerFor, Verdict


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
        decisive=reasons.why_not_newest(first, wish, rejections, routes),
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
    reason = reasons.why_nothing(situation, wish, rejections, change)
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
        summary=reasons.why_nothing(situation, wish, rejections, change),
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
