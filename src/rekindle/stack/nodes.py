"""Several machines at once: one stack for all of them, or the fewest that together serve every one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rekindle.core.command import Command
from rekindle.core.version import Version
from rekindle.stack.candidates import candidates
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation, Wish
from rekindle.stack.verdict import Verdict


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


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle plan` for several machines. `stacks` is how many different ones are needed."""

    schema: str = "rekindle.nodes/1"
    nodes: tuple[Node, ...]
    stacks: int
    unreadable: dict[str, str] = {}
    """Snapshots that could not be read, and why: nothing is said of these machines."""


def resolve_all(places: Mapping[str, Situation], wish: Wish) -> Nodes:
    """A stack that serves most of the machines that are left, again and again, until each has one."""
    verdicts = {name: resolve(place, wish, as_it_is=True) for name, place in places.items()}
    routes = {name: _routes(verdicts[name], place, wish) for name, place in places.items()}
    own = {name: _stack(verdict.recommended) for name, verdict in verdicts.items()}
    chosen: dict[str, Route] = {}
    stacks = 0
    while left := [name for name in places if name not in chosen]:
        best = _serving_most(routes, left, own)
        if best is None:
            break
        stacks += 1
        for name in left:
            fitting = next((route for route in routes[name] if _stack(route) == best), None)
            if fitting is not None:
                chosen[name] = fitting
    rest = {name: verdict.recommended for name, verdict in verdicts.items() if name not in chosen}
    every = {**chosen, **rest}
    found = [_node(name, places[name], every[name]) for name in places]
    alone = {name: str(stack[0]) if stack[0] and stack[0] != every[name].torch else None for name, stack in own.items()}
    nodes = tuple(msgspec.structs.replace(node, alone=alone[node.name]) for node in found)
    return Nodes(nodes=nodes, stacks=stacks)


def _routes(verdict: Verdict, place: Situation, wish: Wish) -> list[Route]:
    """The routes of a machine that lose no more than its best one."""
    best = verdict.recommended
    # Every line of a release counts here, not the best one alone: what another machine needs may be among them.
    every = [each.route for each in candidates(place, wish)[0]] if verdict.routes else []
    return [
        route
        for route in (*verdict.routes, *every)
        if route.consent and bool(route.loses) <= bool(best.loses) and route.route.tier <= best.route.tier
    ]


def _stack(route: Route) -> tuple[object, ...]:
    """A release and its CUDA. Each machine keeps the Python it has where it can: that does not make two stacks."""
    return (route.torch, str(route.cuda))


def _serving_most(
    routes: Mapping[str, list[Route]], left: list[str], own: Mapping[str, tuple[object, ...]]
) -> tuple[object, ...] | None:
    """The stack of most machines; among equals the one that more of them would get alone, then the newest."""
    count: dict[tuple[object, ...], int] = {}
    for name in left:
        for stack in {_stack(route) for route in routes[name]}:
            count[stack] = count.get(stack, 0) + 1
    newest = {stack: Version(str(stack[0] or "0")) for stack in count}
    alone = {stack: sum(own[name] == stack for name in left) for stack in count}
    return max(count, key=lambda stack: (count[stack], alone[stack], newest[stack]), default=None)


def _node(name: str, place: Situation, route: Route) -> Node:
    return Node(
        name=name,
        cards=tuple(card.name for card in place.cards),
        route=route.route,
        torch=route.torch,
        variant=route.variant,
        cuda=route.cuda,
        python=route.python,
        commands=route.commands,
        summary=route.summary,
    )
