"""The locks of several machines: a plan for each stack, and an index from which a machine finds its own."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import NoRoute, NotFound, UsageError
from rekindle.core.untrusted import PlainFileName
from rekindle.stack.nodes import Node, Nodes, as_good
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Card, Situation, Wish

if TYPE_CHECKING:
    from collections.abc import Callable

INDEX = "nodes.toml"
SCHEMA = "rekindle.lab/1"
_HEAD = (
    "# Written by Rekindle: which file of this folder is whose. `rekindle install --plan FOLDER` reads it for plans.\n"
)


class Lab(msgspec.Struct, frozen=True, kw_only=True):
    """The index: which file of the folder is whose."""

    schema: str = SCHEMA
    hosts: dict[str, PlainFileName]
    without: dict[str, str] = {}
    """Machines that have no file here, and why."""


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """One stack, under the name of its file, for the machines that take it."""

    name: str
    hosts: tuple[str, ...]
    verdict: Verdict


def locks(places: Mapping[str, Situation], found: Nodes, wish: Wish) -> list[Lock]:
    """A verdict for each group of machines that one plan can serve: a plan has one system and one Python."""
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in found.nodes:
        if node.route is not RouteKind.NONE:
            place = places[node.name]
            key = (place.system, place.arch, place.wsl, node.key, node.variant, node.python)
            groups.setdefault(key, []).append(node)
    made: list[Lock] = []
    for group in groups.values():
        for nodes, verdict in _verdicts(group, places, wish):
            name = _named(verdict, {lock.name for lock in made})
            made.append(Lock(name=name, hosts=tuple(node.name for node in nodes), verdict=verdict))
    return made


def write(folder: Path, made: Sequence[Lock], without: Mapping[str, str], put: Callable[[Lock, Path], str]) -> Lab:
    """Fill the folder. `put` writes a lock's file and answers its name. Nobody's own folder is written into."""
    import tomli_w

    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / INDEX).is_file())):
        message = f"`{folder}` already exists and is not a folder of plans"
        raise UsageError(message, hint="name a new folder with `-o`")
    folder.mkdir(exist_ok=True)
    hosts: dict[str, PlainFileName] = {}
    for lock in made:
        hosts |= dict.fromkeys(lock.hosts, PlainFileName(put(lock, folder)))
    lab = Lab(hosts=hosts, without=dict(without))
    files.write_text(folder / INDEX, _HEAD + tomli_w.dumps({"schema": lab.schema, **codec.to_builtins(lab)}))
    return lab


def own_plan(folder: Path, host: str | None = None) -> Path:
    """The plan of this machine, by its name."""
    index = folder / INDEX
    if not index.is_file():
        message = f"`{folder}` is a folder without `{INDEX}`"
        raise NotFound(message, hint="name a plan's file, or a folder of `rekindle plan --machine FOLDER -o DIR`")
    lab = codec.from_toml(files.read_bytes(index, limit=4 * 1024 * 1024), Lab, name=f"`{index}`")
    hint = "`rekindle plan --machine FOLDER -o DIR` writes one"
    codec.expect(lab.schema, SCHEMA, "an index of plans", name=f"`{index}`", hint=hint)
    here = host or socket.gethostname()
    mine = {lab.hosts[name] for name in _called(lab.hosts, here)}
    if len(mine) == 1:
        own = folder / mine.pop()
        if own.suffix == ".toml":
            return own
        hint = "use that file as it is; `rekindle plan --machine FOLDER -o DIR` without `--as` writes plans"
        raise UsageError(f"what `{index}` has for `{here}` is no plan: `{own}`", hint=hint)
    if mine:
        message = f"`{index}` has several machines called `{here}`, with different plans"
        raise UsageError(message, hint=f"name one: {', '.join(f'`{folder / name}`' for name in sorted(mine)[:4])}")
    for name in _called(lab.without, here):
        message = f"`{index}` has no plan for `{here}`: {lab.without[name][:400]}"
        raise NoRoute(message, hint="`rekindle plan` here says what would change that")
    message = f"this machine, `{here}`, is not in `{index}`"
    hint = f"`rekindle doctor --save {here}.json` here, then `rekindle plan --machine FOLDER -o DIR` with it"
    raise NotFound(message, hint=f"{hint}; or name the plan's file itself")


def inventory(made: Sequence[Lock]) -> str:
    """Groups of an Ansible inventory, each with the file of its plan."""
    lines: list[str] = []
    for lock in made:
        group = re.sub(r"\W", "_", lock.name)
        lines += [f"[{group}]", *_hosts(lock), "", f"[{group}:vars]", f"rekindle_plan={lock.name}.toml", ""]
    return "\n".join(lines)


def features(made: Sequence[Lock]) -> str:
    """What to add to the nodes' lines in `slurm.conf`, for `sbatch --constraint`."""
    found: dict[str, list[str]] = {}
    for lock in made:
        found.setdefault(re.sub(r"\W", "_", f"torch_{lock.verdict.recommended.version}"), []).extend(_hosts(lock))
    return "\n".join(f"NodeName={','.join(hosts)} Features={feature}" for feature, hosts in found.items())


def _hosts(lock: Lock) -> list[str]:
    """Names that are nothing but names: they come from files of others."""
    for host in lock.hosts:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host):
            message = f"`{host[:60]}` is not the name of a host"
            raise UsageError(message, hint="name each snapshot after its machine: `NAME.json`, each once")
    return list(lock.hosts)


def _called(names: Iterable[str], host: str) -> list[str]:
    """The entries of a host: by its whole name, else by the first part of it."""

    def last(name: str) -> str:
        return name.rpartition("/")[2].casefold()

    every = list(names)
    whole = [name for name in every if last(name) == host.casefold()]
    short = host.casefold().partition(".")[0]
    return whole or [name for name in every if last(name).partition(".")[0] == short]


def _verdicts(group: list[Node], places: Mapping[str, Situation], wish: Wish) -> list[tuple[list[Node], Verdict]]:
    """One for all of them where one plan can be; else one for each kind of machine."""
    shared = _verdict(_together([places[node.name] for node in group]), group[0], wish)
    if shared is not None:
        return [(group, shared)]
    alike: dict[tuple[Card, ...], list[Node]] = {}
    for node in group:
        alike.setdefault(places[node.name].cards, []).append(node)
    found = []
    for nodes in alike.values():
        alone = _verdict(places[nodes[0].name], nodes[0], wish)
        if alone is None:
            raise NoRoute(f"torch {nodes[0].torch} cannot be planned for `{nodes[0].name}` by itself")
        found.append((nodes, alone))
    return found


def _verdict(place: Situation, node: Node, wish: Wish) -> Verdict | None:
    """The answer for a place, with the stack that was chosen for this machine; None where it does not serve it."""
    pinned = msgspec.structs.replace(wish, torch=node.torch, cuda=node.cuda)
    verdict = resolve(msgspec.structs.replace(place, python=node.python), pinned, as_it_is=True)
    for route in (*as_good(verdict), *verdict.routes):
        if (route.torch, route.cuda, route.variant, route.python) == (node.torch, node.cuda, node.variant, node.python):
            return msgspec.structs.replace(verdict, wish=wish, recommended=route)
    return None


def _together(places: Sequence[Situation]) -> Situation:
    """One machine with the cards of all, and of everything else what each of them has."""
    first = places[0]
    cards = {(card.name, card.capabilities): card for place in places for card in place.cards}
    processors = [set(place.cpu) for place in places if place.cpu is not None]
    common = reduce(set.intersection, processors) if len(processors) == len(places) else None
    return msgspec.structs.replace(
        first,
        cards=tuple(cards.values()),
        driver=min((place.driver for place in places if place.driver), default=None),
        glibc=min((place.glibc for place in places if place.glibc), default=None),
        cpu=tuple(each for each in first.cpu or () if each in common) if common is not None else None,
        installed=None,
        conda=first.conda if len({place.conda for place in places}) == 1 else None,
    )


def _named(verdict: Verdict, taken: set[str]) -> str:
    """`torch-2.14.1-cu126-linux-py3.11`."""
    route, place = verdict.recommended, verdict.situation
    arch = f"-{place.arch}" if place.arch != "x86_64" else ""
    name = f"torch-{route.torch}-{route.variant or f'cuda{route.cuda}'}-{place.system}{arch}-py{route.python}"
    more = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(each for each in (name, *more) if each not in taken)
