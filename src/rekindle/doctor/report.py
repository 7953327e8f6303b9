"""The doctor's whole answer: the machine, the checks, the verdict."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rekindle.core import console
from rekindle.core.findings import Finding, Fix, State, worst
from rekindle.doctor.examine import examine
from rekindle.doctor.graphics import describe
from rekindle.knowledge.builds import checks as catalogue
from rekindle.machine.compare import Difference, differences
from rekindle.machine.model import Machine
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind


class Report(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.doctor/1"
    state: State
    machine: Machine
    checks: tuple[Finding, ...]
    verdict: Route | None = None
    """What `rekindle plan` recommends for this machine; null without a card and with `--only`."""
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


def report(machine: Machine, *, only: Iterable[str] = ()) -> Report:
    only = tuple(only)
    checks = examine(machine, only=only)
    verdict = _verdict(machine) if machine.gpus and not only else None
    return Report(
        state=worst(checks),
        machine=machine,
        checks=checks,
        verdict=verdict,
        next=None if only else _next(checks, verdict),
    )


def _verdict(machine: Machine) -> Route:
    from rekindle.stack.from_machine import situation_of
    from rekindle.stack.resolver import resolve
    from rekindle.stack.situation import Wish

    return resolve(situation_of(machine), Wish()).recommended


def _next(checks: tuple[Finding, ...], verdict: Route | None) -> Fix | None:
    """A card without its driver comes first; then what the verdict says; without a card, how to ask for one."""
    for finding in checks:
        blocks = finding.id in ("gpu.problem", "gpu.together", "driver.present", "driver.serves-card", "driver.agrees")
        if blocks and finding.state is State.FAIL and finding.fix:
            return finding.fix
    if verdict is None:
        example = 'rekindle plan --gpu "Tesla K40c" --os windows --python 3.11'
        return Fix(text="ask for the card you mean", commands=(example,))
    if verdict.route in (RouteKind.OFFICIAL_WHEEL, RouteKind.CONDA_FORGE, RouteKind.SHELF):
        return Fix(text=verdict.summary, commands=("rekindle install",), mechanical=True)
    if verdict.route is RouteKind.INSTALLED:
        return Fix(text=verdict.summary, commands=("rekindle verify",), mechanical=True)
    if verdict.commands:
        return Fix(text=verdict.summary, commands=verdict.commands)
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


def text(answer: Report, *, everything: bool) -> str:
    """What a person reads: the machine in a few lines, then what is not well, worst first, then what to do next."""
    lines = [console.table(summary(answer.machine)), ""]
    order = [State.FAIL, State.UNVERIFIED, State.WARN, *([State.PASS] if everything else [])]
    spared = set() if everything else _for_builds(answer)
    for state in order:
        for finding in answer.checks:
            if finding.state is state and not (state is State.WARN and finding.id in spared):
                lines.append(console.finding(finding))
                lines.append(" " * 11 + console.paint(finding.id, "dim"))
    if spared:
        said = f"Only a build from source would mind: {', '.join(sorted(spared))} (`--all` shows why)"
        lines.append(console.wrap(said, indent=" " * 11, first=f"{'WARN':<11}"))
    counts = {state: sum(finding.state is state for finding in answer.checks) for state in State}
    if len(lines) > 2:
        lines.append("")
    told = [f"{counts[State.PASS]} passed", f"{counts[State.WARN]} to know", f"{counts[State.UNVERIFIED]} unverified"]
    lines.append(f"{len(answer.checks)} checks: {', '.join(told)}, {counts[State.FAIL]} failed")
    if answer.verdict:
        lines += [
            "",
            console.wrap(
                answer.verdict.summary, indent=" " * 11, first="Will work  " if _works(answer) else "Verdict    "
            ),
        ]
        lines += [console.wrap(f"without {loss}", indent=" " * 11) for loss in answer.verdict.loses]
        if answer.next is None or answer.next.commands != answer.verdict.commands:
            lines += [f"           by hand: {command}" for command in answer.verdict.commands]
    if answer.next:
        steps = answer.next.commands
        lines += [
            "",
            f"Next       {steps[0]}" if steps else console.wrap(answer.next.text, indent=" " * 11, first="Next       "),
        ]
        lines += [f"           {step}" for step in steps[1:]]
    return "\n".join(lines)


def _for_builds(answer: Report) -> set[str]:
    """Warnings that are beside the point, because a wheel will do and nothing has to be built."""
    if answer.verdict is None or answer.verdict.route in (RouteKind.SOURCE_BUILD, RouteKind.NONE):
        return set()
    builds = {row.id for row in catalogue.checks() if row.build_only}
    return {finding.id for finding in answer.checks if finding.state is State.WARN and finding.id in builds}


def _works(answer: Report) -> bool:
    return answer.verdict is not None and answer.verdict.route is not RouteKind.NONE


def compared(answer: Comparison, first: str, second: str) -> str:
    """Checks that end differently, then the facts behind them."""
    lines: list[str] = []
    for changed in answer.checks:
        lines.append(changed.id)
        lines.append(console.wrap(changed.first, indent=" " * 6, first=f"  {first}: "))
        lines.append(console.wrap(changed.second, indent=" " * 6, first=f"  {second}: "))
    if answer.facts:
        lines += ["", "Facts that differ"] if lines else ["Facts that differ"]
    for fact in answer.facts:
        lines.append(f"  {fact.what}")
        lines.append(f"    {first}: {'-' if fact.first is None else fact.first}")
        lines.append(f"    {second}: {'-' if fact.second is None else fact.second}")
    return console.clean("\n".join(lines)) or f"{first} and {second} have the same facts and checks"


def summary(machine: Machine) -> list[tuple[str, str]]:
    """The machine in a few lines."""
    seen = machine.surroundings
    system = [seen.release or machine.os, machine.arch]
    if seen.wsl:
        system.append(f"WSL {seen.wsl}")
    rows = [("System", ", ".join(system))]
    rows += [("GPU", describe(gpu)) for gpu in machine.gpus] or [("GPU", "no NVIDIA card")]
    if machine.driver and machine.driver.version:
        cuda = f", runs CUDA up to {machine.driver.cuda}" if machine.driver.cuda else ""
        rows.append(("Driver", f"{machine.driver.version}{cuda}"))
    for toolkit in machine.toolkits:
        wins = " (first on PATH)" if "PATH" in toolkit.found_by else ""
        rows.append(("CUDA", f"{toolkit.version or '?'} in {toolkit.root}{wins}"))
    rows += [("cuDNN", f"{one.version or '?'} in {one.root}") for one in machine.cudnns]
    for studio in machine.studios:
        rows.append(("MSVC", f"{studio.name}: {', '.join(str(t.version) for t in studio.toolsets) or 'no C++ tools'}"))
    gccs = [f"{c.kind} {c.version}" for c in machine.compilers]
    if gccs:
        rows.append(("Compilers", ", ".join(gccs)))
    if machine.python:
        rows.append(("Python", f"{machine.python.version or '?'} ({machine.python.kind}) {machine.python.path}"))
    if machine.torch:
        cuda = f"CUDA {machine.torch.cuda}" if machine.torch.cuda else "CPU only"
        rows.append(("torch", f"{machine.torch.version} ({cuda})"))
    return [(label, console.clean(value)) for label, value in rows]


def _by_id(findings: Iterable[Finding]) -> dict[str, str]:
    told: dict[str, str] = {}
    for finding in findings:
        line = f"{finding.state.value}: {finding.found}"
        told[finding.id] = f"{told[finding.id]}; {line}" if finding.id in told else line
    return told
