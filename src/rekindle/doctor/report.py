"""The doctor's whole answer: the machine, the checks, the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from rekindle import console
from rekindle.doctor.examine import examine
from rekindle.doctor.graphics import describe
from rekindle.findings import Finding, State, worst
from rekindle.machine.compare import Difference, differences
from rekindle.machine.model import Machine


class Report(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.doctor/1"
    state: State
    machine: Machine
    checks: tuple[Finding, ...]
    verdict: Any = None
    """What `rekindle plan` recommends for this machine; null when it could not be asked."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.doctor-comparison/1"
    checks: tuple[ChangedCheck, ...]
    facts: tuple[Difference, ...]


class ChangedCheck(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    first: str
    second: str


def report(machine: Machine, *, only: Iterable[str] = ()) -> Report:
    checks = examine(machine, only=only)
    return Report(state=worst(checks), machine=machine, checks=checks)


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
    for state in order:
        for finding in answer.checks:
            if finding.state is state:
                lines.append(console.finding(finding))
                lines.append(" " * 11 + console.paint(finding.id, "dim"))
    counts = {state: sum(finding.state is state for finding in answer.checks) for state in State}
    if len(lines) > 2:
        lines.append("")
    told = [f"{counts[State.PASS]} passed", f"{counts[State.WARN]} to know", f"{counts[State.UNVERIFIED]} unverified"]
    lines.append(f"{len(answer.checks)} checks: {', '.join(told)}, {counts[State.FAIL]} failed")
    return "\n".join(lines)


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
    return "\n".join(lines) or f"{first} and {second} have the same facts and checks"


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
    return rows


def _by_id(findings: Iterable[Finding]) -> dict[str, str]:
    told: dict[str, str] = {}
    for finding in findings:
        line = f"{finding.state.value}: {finding.found}"
        told[finding.id] = f"{told[finding.id]}; {line}" if finding.id in told else line
    return told
