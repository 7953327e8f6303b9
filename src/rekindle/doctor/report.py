"""The doctor's answer: the machine, the checks, the verdict, the next step.

A check is a function from a machine to findings; its words are in `checks.toml`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from rekindle.core import console
from rekindle.core.codec import JsonAnswer
from rekindle.core.command import rekindle
from rekindle.core.findings import Finding, Fix, State, worst
from rekindle.doctor.check import JUDGES, Judge
from rekindle.knowledge.builds import checks as catalogue
from rekindle.machine.model import Machine
from rekindle.machine.python.environment import beside
from rekindle.machine.snapshot import Difference, differences
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind


def examine(machine: Machine, *, only: Iterable[str] = ()) -> tuple[Finding, ...]:
    """The findings, in the order of `catalogue.toml`. A check that does not apply to this machine gives none.

    `only` takes ids and groups: `cuda` means every `cuda.…`.
    """
    wanted = _selected(only)
    found: list[Finding] = []
    for function in dict.fromkeys(judges()[name] for name in wanted if name in judges()):
        found += [finding for finding in function(machine) if finding.id in wanted]
    return tuple(sorted(found, key=lambda finding: wanted.index(finding.id)))


def judges() -> dict[str, Judge]:
    """Which function answers which check. Importing the modules registers them."""
    from rekindle.doctor import compilers, computer, cuda, graphics, python

    del compilers, computer, cuda, graphics, python
    return JUDGES


def prepare() -> None:
    """Read the tables that every examination reads."""
    from rekindle.knowledge.cuda import toolkits
    from rekindle.knowledge.torch import releases

    catalogue.checks()
    releases.torch_releases()
    toolkits.toolkits()


def _selected(only: Iterable[str]) -> list[str]:
    every = [row.id for row in catalogue.checks()]
    asked = [name.strip() for part in only for name in part.split(",") if name.strip()]
    if not asked:
        return every
    chosen = set()
    for name in asked:
        group = [one for one in every if one.split(".")[0] == name]
        chosen |= set(group) if group else {catalogue.check(name).id}
    return [one for one in every if one in chosen]


class DoctorReport(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    schema: str = "rekindle.doctor/1"
    state: State
    machine: Machine
    checks: tuple[Finding, ...]
    verdict: Route | None = None
    """What `rekindle plan` recommends for this machine; null without a card and with `--only`."""
    folded: tuple[str, ...] = ()
    """Checks that matter only for a build from source, where nothing has to be built: they do not count."""
    next: Fix | None = None
    """The one thing to do now: commands, or a sentence where no command does it."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.doctor-comparison/1"
    checks: tuple[ChangedCheck, ...]
    facts: tuple[Difference, ...]


class ChangedCheck(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    first: str
    second: str


def report(machine: Machine, *, only: Iterable[str] = (), recorded: Path | None = None) -> DoctorReport:
    """`recorded`: the snapshot that the machine was read from, which the commands then name."""
    only = tuple(only)
    checks = examine(machine, only=only)
    verdict = _verdict(machine, recorded) if machine.gpus and not only else None
    folded = set() if only else _folded(checks, verdict)
    return DoctorReport(
        state=worst(check for check in checks if check.id not in folded),
        folded=tuple(sorted(folded)),
        machine=machine,
        checks=checks,
        verdict=verdict,
        next=None if only else _next(checks, verdict, near=recorded is None and beside() is not None),
    )


def _verdict(machine: Machine, recorded: Path | None) -> Route:
    from rekindle.stack.from_machine import situation_of
    from rekindle.stack.resolver import resolve
    from rekindle.stack.situation import Wish

    situation = msgspec.structs.replace(situation_of(machine), recorded=str(recorded) if recorded else None)
    found = resolve(situation, Wish()).recommended
    if situation.cards:
        return found
    named = ", ".join(dict.fromkeys(gpu.name or gpu.pci_id or "a card" for gpu in machine.gpus))
    return msgspec.structs.replace(found, summary=f"which card `{named}` is could not be told")


def _folded(checks: tuple[Finding, ...], verdict: Route | None) -> set[str]:
    """What is beside the point: a wheel will do and nothing has to be built; or there is no card to build for, and it
    is no failure.
    """
    if verdict is not None and verdict.route in (RouteKind.SOURCE_BUILD, RouteKind.NONE):
        return set()
    minded = (State.PASS,) if verdict is not None else (State.PASS, State.FAIL)
    builds = {row.id for row in catalogue.checks() if row.build_only}
    found = {finding.id for finding in checks if finding.state not in minded and finding.id in builds}
    return found - {finding.id for finding in checks if verdict is None and finding.state is State.FAIL}


def _next(checks: tuple[Finding, ...], verdict: Route | None, *, near: bool) -> Fix | None:
    """A card without its driver comes first; then what the verdict says; without a card, how to ask for one.

    `near`: an application's folder with a Python of its own, which is meant there.
    """
    blocking = ("gpu.problem", "gpu.together", "driver.present", "driver.serves-card", "driver.agrees")
    fixes = [each.fix for each in checks if each.id in blocking and each.state is State.FAIL and each.fix]
    if fixes:
        return next((fix for fix in fixes if fix.commands), fixes[0])
    if verdict is None:
        return next((each.fix for each in checks if each.id == "gpu.present"), None)
    if verdict.driver_first is not None and verdict.change is not None:
        return Fix(text=verdict.change.text, commands=verdict.driver_first.commands)
    if near and verdict.route.by_pip:
        return Fix(text=verdict.summary, commands=(rekindle("install", "."),), mechanical=True)
    if verdict.route.by_pip or verdict.route is RouteKind.CONDA_FORGE:
        own = next((each for each in checks if each.id == "python.one-environment" and each.fix), None)
        if own and own.fix and own.state is State.FAIL:
            # It would install into the other one.
            return Fix(text=f"{own.fix.text}; then", commands=(*own.fix.commands, rekindle("install")))
        # Where none is active, one is made first and named.
        made = own.fix.commands if own and own.fix else ()
        return Fix(text=verdict.summary, commands=made or (rekindle("install"),), mechanical=True)
    if verdict.route is RouteKind.INSTALLED:
        return Fix(text=verdict.summary, commands=(rekindle("verify"),), mechanical=True)
    if verdict.commands:
        # What it needs and is not here comes first, by its first command.
        before = [piece.commands[0] for piece in verdict.missing if piece.commands]
        return Fix(text=verdict.summary, commands=(*before, *verdict.commands))
    if verdict.route is RouteKind.NONE:
        return Fix(text=verdict.change.text if verdict.change else verdict.summary)
    return None


def compare(first: Machine, second: Machine) -> Comparison:
    one, other = _by_id(examine(first)), _by_id(examine(second))
    changed = [
        ChangedCheck(id=name, first=one.get(name, "does not apply"), second=other.get(name, "does not apply"))
        for name in dict.fromkeys((*one, *other))
        if one.get(name) != other.get(name)
    ]
    return Comparison(checks=tuple(changed), facts=differences(first, second))


def _by_id(findings: Iterable[Finding]) -> dict[str, str]:
    told: dict[str, str] = {}
    for finding in findings:
        line = f"{finding.state.value}: {finding.found}"
        told[finding.id] = f"{told[finding.id]}; {line}" if finding.id in told else line
    return told


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.doctor-check/1"
    check: catalogue.Check
    found: tuple[Finding, ...]


def explain(name: str, machine: Machine) -> Explanation:
    row = catalogue.check(name)
    return Explanation(check=row, found=examine(machine, only=[name]))


def explanation(answer: Explanation) -> str:
    row = answer.check
    lines = [f"{row.id}: {row.title}", ""]
    for label, words in (("why", row.why), ("fix", row.fix), ("source", row.source)):
        lines.append(
            console.wrap(
                f"{words} ({row.evidence.phrase})" if label == "source" else words, indent=" " * 8, first=f"{label:<8}"
            )
        )
    lines += ["", "Here:"]
    lines += [console.finding(finding) for finding in answer.found] or ["it does not apply to this machine"]
    return "\n".join(lines)
