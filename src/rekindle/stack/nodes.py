"""Several machines at once: the fewest stacks, none of which costs a machine more releases than it may."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rekindle.core import codec
from rekindle.core.command import Command
from rekindle.core.version import Version
from rekindle.knowledge.torch import releases
from rekindle.stack.candidates import candidates
from rekindle.stack.resolver import managed, resolve
from rekindle.stack.route import Route, Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation, Wish

WITHIN = 2
"""How many releases a machine may be moved back, so that it shares a stack."""
Key = tuple[str, str, bool]
"""A release, its CUDA, and whether it is ready-made. Each machine keeps its Python: that does not make two stacks."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One machine and the stack that was chosen for it."""

    name: str
    cards: tuple[str, ...]
    route: RouteKind
    torch: str | None
    variant: str | None
    cuda: Version | None
    python: str | None
    commands: tuple[Command, ...]
    summary: str
    alone: str | None = None
    """The release that it would get by itself, where that is another one."""
    notes: tuple[str, ...] = ()
    """What its system asks for before the commands."""

    @property
    def key(self) -> Key:
        return _key(self)


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """Machines with a stack of their own, and what sharing one would cost the most others that share one."""

    machines: tuple[str, ...]
    what: str
    others: int
    torch: str | None = None
    """The newest release that would serve all of them; None when there is none."""
    releases: int | None = None
    """How many releases back that is for the others."""


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle plan` for several machines. `stacks` is how many different ones are needed."""

    schema: str = "rekindle.nodes/1"
    nodes: tuple[Node, ...]
    stacks: int
    apart: tuple[Apart, ...] = ()
    unreadable: dict[str, str] = {}
    """Snapshots that could not be read, and why: nothing is said of these machines."""


class _Kind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Machines that are one question, its answer, and every stack that would serve them."""

    names: tuple[str, ...]
    place: Situation
    best: Route
    routes: dict[Key, Route]

    def back(self, key: Key) -> int:
        """How many releases older than its own this stack is."""
        return _age(self.best.torch) - _age(key[0])


def resolve_all(places: Mapping[str, Situation], wish: Wish, within: int = WITHIN) -> Nodes:
    """A stack that serves most of the machines that are left, again and again, until each has one."""
    kinds = _kinds(places, wish)
    near = {kind: {key for key in kind.routes if kind.back(key) <= within} for kind in kinds}
    stacks: list[Key] = []
    while left := [kind for kind in kinds if near[kind].isdisjoint(stacks) and near[kind]]:
        stacks.append(_serving_most(left, near))
    # A later stack may be nearer to what a machine would get by itself.
    chosen = {kind: min(near[kind].intersection(stacks), key=kind.back) for kind in kinds if near[kind]}
    nodes = {node.name: node for kind in kinds for node in _nodes(kind, chosen.get(kind))}
    return Nodes(
        nodes=tuple(nodes[name] for name in places), stacks=len(set(chosen.values())), apart=tuple(_apart(chosen))
    )


def _kinds(places: Mapping[str, Situation], wish: Wish) -> list[_Kind]:
    """Equal machines are one question: how much memory and disk is free just now makes no other stack."""
    alike: dict[Situation, list[str]] = {}
    for name, place in places.items():
        alike.setdefault(msgspec.structs.replace(place, memory=None, disk=None, recorded=None), []).append(name)
    found = []
    for names in alike.values():
        place = places[names[0]]
        verdict = resolve(place, wish, as_it_is=True)
        best = verdict.recommended
        if not best.route.ready_made:
            # What one machine by itself is told: to give something up, or to change something first.
            alone = resolve(place, wish, as_it_is=False).recommended
            if best.route is RouteKind.NONE:
                best = msgspec.structs.replace(best, summary=alone.summary)
            elif alone.change is None:
                best = alone
        routes = {_key(route): route for route in (*reversed(as_good(verdict)), best) if route.torch}
        found.append(_Kind(names=tuple(names), place=place, best=best, routes=routes))
    return found


def as_good(verdict: Verdict) -> list[Route]:
    """The routes that lose no more than the best one and keep the Python that it keeps, best first."""
    best, have = verdict.recommended, verdict.situation.python
    # Every line of a release counts here, not the best one alone: what another machine needs may be among them.
    every = [each.route for each in candidates(verdict.situation, verdict.wish)[0]] if verdict.routes else []
    return [
        route
        for route in (*verdict.routes, *every)
        if route.consent
        and bool(route.loses) <= bool(best.loses)
        and route.route.tier <= best.route.tier
        and (route.python != have) <= (best.python != have)
    ]


def _key(route: Route | Node) -> Key:
    return (route.torch or "", str(route.cuda), route.route.ready_made)


def _age(torch: str | None) -> int:
    """The number of its release, counted from the first that is known."""
    minors = [Version(release.minor) for release in releases.torch_releases()]
    return bisect_right(minors, Version(torch or "0"))


def _count(kinds: Iterable[_Kind]) -> int:
    return sum(len(kind.names) for kind in kinds)


def _serving_most(left: list[_Kind], near: Mapping[_Kind, set[Key]]) -> Key:
    """The stack of most machines; among equals the one that moves them least, that more get alone, the newest."""
    served: dict[Key, list[_Kind]] = {}
    for kind in left:
        for key in near[kind]:
            served.setdefault(key, []).append(kind)

    def worth(key: Key) -> tuple[object, ...]:
        kinds = served[key]
        moved = sum(max(kind.back(key), 0) * len(kind.names) for kind in kinds)
        own = _count(kind for kind in kinds if _key(kind.best) == key)
        return _count(kinds), -moved, own, Version(key[0] or "0"), key

    return max(served, key=worth)


def _nodes(kind: _Kind, key: Key | None) -> list[Node]:
    route = kind.routes[key] if key is not None else kind.best
    return [
        codec.like(
            Node,
            route,
            name=name,
            cards=tuple(card.name for card in kind.place.cards for _ in range(card.count)),
            alone=kind.best.torch if kind.best.torch != route.torch else None,
            notes=(*managed(kind.place, route), *(f"loses: {loss}" for loss in route.loses)),
        )
        for name in kind.names
    ]


def _apart(chosen: Mapping[_Kind, Key]) -> list[Apart]:
    """Every stack but the one of most machines, with the price of giving its machines and those one stack."""
    sharing: dict[Key, list[_Kind]] = {}
    for kind, key in chosen.items():
        sharing.setdefault(key, []).append(kind)
    most, *rest = sorted(sharing.values(), key=_count, reverse=True) or [[]]
    return [_priced(kinds, most) for kinds in rest]


def _priced(kinds: Sequence[_Kind], most: Sequence[_Kind]) -> Apart:
    common = set.intersection(*(set(kind.routes) for kind in (*kinds, *most)))
    newest = max(common, key=lambda key: Version(key[0] or "0"), default=None)
    return Apart(
        machines=tuple(name for kind in kinds for name in kind.names),
        what=_told_apart(kinds, most),
        others=_count(most),
        torch=newest[0] if newest else None,
        releases=max(kind.back(newest) for kind in most) if newest else None,
    )


def _told_apart(kinds: Sequence[_Kind], most: Sequence[_Kind]) -> str:
    """Their cards; what else differs where others have the same cards."""
    cards, others = ({card.name for kind in group for card in kind.place.cards} for group in (kinds, most))
    said = " and ".join(sorted(cards - others or cards))
    if cards - others:
        return said
    for what in ("driver", "python", "system"):
        here, there = ({str(getattr(kind.place, what)) for kind in group} for group in (kinds, most))
        if here.isdisjoint(there):
            return f"{said} with {what} {' and '.join(sorted(here))}"
    return said
