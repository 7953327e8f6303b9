"""`rekindle plan`: which PyTorch, by which route, and why not the others."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.errors import ChecksFailed, NoRoute
from rekindle.stack import plan as lock
from rekindle.stack.from_machine import asked
from rekindle.stack.matrix import Matrix, matrix, spoken_pythons, spoken_source, spoken_wheels
from rekindle.stack.resolver import Verdict, WhyNot, resolve
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Prefer, Situation, Wish, version_of
from rekindle.stack.why_not import why_not as explain


@click.command("plan")
@options.gpus
@options.system
@options.python
@options.torch
@options.cuda
@options.driver
@options.toolset
@options.profile
@click.option("--prefer", type=click.Choice([each.value for each in Prefer]), default="newest", show_default=True)
@click.option("--community", is_flag=True, help="A wheel that somebody else built may be recommended.")
@click.option("--configured-index", is_flag=True, help="Only wheels of the index that pip is configured for.")
@click.option("--why-not", metavar="WHAT", help="Why not torch==2.7.1, cuda==12.3 or python==3.13?")
@click.option("--list", "every", is_flag=True, help="The compatibility matrix: every release against these cards.")
@options.output("Write the plan, as TOML, to carry it out here or elsewhere.")
@click.option(
    "--bundle",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Collect here what a machine without network needs.",
)
@click.option(
    "--from", "origin", type=click.Path(path_type=Path), metavar="PLAN", help="Resolve a plan again and compare."
)
@options.shelf
@options.machine
@options.as_json
def command(
    gpus: tuple[str, ...],
    system: str | None,
    python: str | None,
    torch: str | None,
    cuda: str | None,
    driver: str | None,
    toolset: str | None,
    profile: str | None,
    prefer: str,
    community: bool,
    configured_index: bool,
    why_not: str | None,
    every: bool,
    output: Path | None,
    folder: Path | None,
    origin: Path | None,
    shelf: Path | None,
    machine: Path | None,
    as_json: bool,
) -> int:
    """Which PyTorch for these cards, by which route, and why not the others."""
    _refuse()
    if origin is not None:
        return _compare(origin, gpus, system, driver, python, machine, as_json)
    wish = Wish(
        torch=torch,
        cuda=version_of(cuda, "--cuda"),
        toolset=version_of(toolset, "--toolset"),
        profile=profile,
        prefer=Prefer(prefer),
        community=community,
        configured_index=configured_index,
    )
    situation = asked(gpus=gpus, system=system, driver=driver, python=python, snapshot=machine)
    if every:
        _list(matrix(situation, wish), as_json)
        return 0
    from rekindle.install.shelf_offers import on_shelf

    verdict = resolve(situation, wish, on_shelf(shelf))
    if why_not is not None:
        verdict = msgspec.structs.replace(verdict, why_not=explain(why_not, situation, wish, verdict))
    if folder is not None:
        _bundle(verdict, folder, as_json)
        return 0
    if as_json:
        console.out_json(verdict)
    elif verdict.why_not is not None:
        _show_why_not(verdict.why_not)
    else:
        show(verdict)
    if output is not None:
        lock.write(lock.plan_of(verdict), output)
        console.say(f"wrote `{output}`")
    return NoRoute.exit_code if verdict.recommended.route is RouteKind.NONE else 0


_WISHES = ("torch", "cuda", "toolset", "profile", "prefer", "community", "configured_index", "shelf")
_MODES = ("origin", "every", "why_not", "folder")


def _refuse() -> None:
    """What is given is used or refused."""
    modes = options.given(*_MODES)
    if "origin" in modes:
        options.exclude("origin", (*_WISHES, *_MODES, "output"))
    elif modes:
        options.exclude(modes[0], (*_MODES, *(("output",) if modes[0] != "why_not" else ())))


def show(verdict: Verdict) -> None:
    console.out(_heading(verdict.situation))
    for note in verdict.notes:
        console.out(console.wrap(note))
    console.out()
    _show_route(verdict.recommended)
    others = [route for route in verdict.routes if route is not verdict.recommended]
    if others:
        console.out()
        console.out("Other routes that work")
        console.out(console.table([_line(route) for route in others[:6]], indent="  "))
        if len(others) > 6:
            console.out(f"  and {len(others) - 6} more: `--json` lists them all")
    if verdict.candidates:
        console.out()
        console.out("Per chip")
        rows = [(str(each.capability), each.route.value, each.summary) for each in verdict.candidates]
        console.out(console.table(rows, indent="  "))


def _bundle(verdict: Verdict, folder: Path, as_json: bool) -> None:
    from rekindle.install.bundle import bundle

    found = bundle(verdict, folder)
    if as_json:
        console.out_json(found)
        return
    size = sum(each.size for each in found.files) / 1e9
    console.out(f"`{folder}`: the plan and {len(found.files)} wheels, {size:.2f} GB")
    for title, lines in (("to fetch by hand", found.by_hand), ("then, on the other machine", found.commands)):
        console.out(f"  {title}")
        for line in lines:
            console.out(f"    {line}")


def _list(found: Matrix, as_json: bool) -> None:
    if as_json:
        console.out_json(found)
        return
    console.out(_heading(found.situation))
    console.out()
    head = ("torch", "Python", "build with CUDA", "cuDNN", "ready-made")
    rows = [
        (
            row.torch,
            spoken_pythons(row),
            spoken_source(row),
            str(row.source_cudnn or "-"),
            spoken_wheels(row),
        )
        for row in found.rows
    ]
    console.out(console.table(rows, head=head) if rows else "nothing: " + "; ".join(found.notes))
    if any(wheel.loses for row in found.rows for wheel in row.wheels):
        console.out()
        console.out("(-) works and loses something: `rekindle plan --torch X` says what")


def _compare(
    origin: Path,
    gpus: tuple[str, ...],
    system: str | None,
    driver: str | None,
    python: str | None,
    machine: Path | None,
    as_json: bool,
) -> int:
    planned = lock.read(origin)
    elsewhere = None
    if gpus or machine:
        elsewhere = asked(gpus=gpus, system=system, driver=driver, python=python, snapshot=machine)
    answer = lock.compare(planned, elsewhere)
    if as_json:
        console.out_json(answer)
    elif not answer.differences:
        console.out(f"the same: torch {planned.torch}, CUDA {planned.cuda}, Python {planned.python}")
    else:
        for each in answer.differences:
            console.out(console.paint(each.field, "bold"))
            console.out(console.wrap(each.planned, first="  planned  ", indent="           "))
            console.out(console.wrap(each.here, first="  here     ", indent="           "))
    return ChecksFailed.exit_code if answer.differences else 0


def _show_why_not(answer: WhyNot) -> None:
    console.out(console.paint(f"why not {answer.question}?", "bold"))
    console.out(console.wrap(answer.sentence, indent="  "))
    said: dict[str, str] = {}
    for each in answer.chain:
        said.setdefault(each.sentence, each.source)
    for sentence, source in said.items():
        console.out()
        console.out(console.wrap(sentence, first="  - ", indent="    "))
        console.out(console.paint(console.wrap(f"source: {source}", indent="    "), "dim"))
    if answer.answer != "recommended":
        console.out()
        console.out(console.wrap(f"recommended instead: {answer.instead}", indent="  "))


def _heading(situation: Situation) -> str:
    cards = " + ".join(
        f"{card.name} ({', '.join(str(each) for each in card.capabilities)})" for card in situation.cards
    )
    driver = f", driver {situation.driver}" if situation.driver else ""
    python = f", Python {situation.python}" if situation.python else ""
    return console.paint(f"{cards or 'no NVIDIA card'} on {situation.system.capitalize()}{driver}{python}", "bold")


def _show_route(route: Route) -> None:
    console.out(console.wrap(f"{route.route.value}: {route.summary}", first="", indent="  "))
    rows = [
        ("torch", route.version if route.torch else ""),
        ("cuda", str(route.cuda or "")),
        ("cudnn", str(route.cudnn or "")),
        ("python", route.python or ""),
        ("driver", route.driver or ""),
        ("toolset", route.toolset or ""),
        ("built for", route.arch_list or ""),
        ("takes", _takes(route)),
        ("evidence", route.evidence.phrase if route.torch else ""),
    ]
    shown = [row for row in rows if row[1]]
    if shown:
        console.out(console.table(shown, indent="  "))
    for title, items in (
        ("why", route.why),
        ("loses", route.loses),
        ("unverified", route.unverified),
        ("will not work on the card", route.lacks),
    ):
        if items:
            console.out()
            console.out(f"  {title}")
            for item in items:
                console.out(console.wrap(item, first="    - ", indent="      "))
    if route.missing:
        console.out()
        console.out("  missing")
        for piece in route.missing:
            have = f" (here: {piece.have})" if piece.have else ""
            console.out(console.wrap(f"{piece.need}{have}", first="    - ", indent="      "))
            for line in piece.commands:
                console.out(f"        {line}")
    if route.change:
        console.out()
        console.out(console.wrap(f"smallest change that would help: {route.change.text}", indent="  "))
        if route.change.torch:
            console.out(f"    then {route.change.route.value}: torch {route.change.torch}, CUDA {route.change.cuda}")
    if route.commands:
        console.out()
        console.out("  Run")
        for line in route.commands:
            console.out(f"    {line}")


def _takes(route: Route) -> str:
    guess = route.estimate
    if guess is None:
        return ""
    hours = f"about {guess.minutes} min" if guess.minutes < 90 else f"about {guess.minutes / 60:.1f} h"
    return f"{guess.download_gb:g} GB to download, {guess.disk_gb:g} GB of disk, {hours}"


def _line(route: Route) -> tuple[str, str, str]:
    cost = f"loses: {route.loses[0]}" if route.loses else ""
    who = f"by {route.builder}" if route.builder else ""
    return route.route.value, f"torch {route.version}", f"CUDA {route.cuda}, Python {route.python} {who} {cost}".strip()
