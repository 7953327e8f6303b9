"""Every check, over one machine. A check is a function from a machine to findings; its words are in `checks.toml`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rekindle.core import console
from rekindle.core.findings import Finding
from rekindle.doctor.check import JUDGES, Judge
from rekindle.knowledge.builds import checks
from rekindle.machine.model import Machine


def examine(machine: Machine, *, only: Iterable[str] = ()) -> tuple[Finding, ...]:
    """The findings, in the order of `checks.toml`. A check that does not apply to this machine gives none.

    `only` takes ids and groups: `cuda` means every `cuda.…`.
    """
    wanted = _selected(only)
    found: list[Finding] = []
    for function in dict.fromkeys(judges()[name] for name in wanted if name in judges()):
        found += [finding for finding in function(machine) if finding.id in wanted]
    return tuple(sorted(found, key=lambda finding: wanted.index(finding.id)))


def judges() -> dict[str, Judge]:
    """Which function answers which check. Importing the modules registers them."""
    from rekindle.doctor import compilers, computer, cuda, graphics, python, torch

    del compilers, computer, cuda, graphics, python, torch
    return JUDGES


def prepare() -> None:
    """Read the tables that every examination reads."""
    from rekindle.knowledge.cuda import toolkits
    from rekindle.knowledge.torch import releases

    checks.checks()
    releases.torch_releases()
    toolkits.toolkits()


def _selected(only: Iterable[str]) -> list[str]:
    every = [row.id for row in checks.checks()]
    asked = [name.strip() for part in only for name in part.split(",") if name.strip()]
    if not asked:
        return every
    chosen = set()
    for name in asked:
        group = [one for one in every if one.split(".")[0] == name]
        chosen |= set(group) if group else {checks.check(name).id}
    return [one for one in every if one in chosen]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.doctor-check/1"
    check: checks.Check
    found: tuple[Finding, ...]


def explain(name: str, machine: Machine) -> Explanation:
    row = checks.check(name)
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
