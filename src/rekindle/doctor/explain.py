"""One check in full: what it looks at, why, what to do, how we know."""

from __future__ import annotations

import msgspec

from rekindle.core import console
from rekindle.core.findings import Finding
from rekindle.doctor.examine import examine
from rekindle.knowledge.builds import checks
from rekindle.machine.model import Machine


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.doctor-check/1"
    check: checks.Check
    found: tuple[Finding, ...]


def explain(name: str, machine: Machine) -> Explanation:
    row = checks.check(name)
    return Explanation(check=row, found=examine(machine, only=[name]))


def text(answer: Explanation) -> str:
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
