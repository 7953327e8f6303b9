"""A diagnosis as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.core.console import paint, wrap
from rekindle.core.findings import Fix
from rekindle.diagnose.answer import Cause, Diagnosis, Evidence, Outcome

_SHOWN_LINES = 4


def text(diagnosis: Diagnosis) -> str:
    parts = [_head(diagnosis)]
    roots = [cause for cause in diagnosis.causes if cause.explained_by is None]
    rest = [cause for cause in diagnosis.causes if cause.explained_by is not None]
    if roots:
        parts.append(_cause(roots[0]))
        jobs = {cause.job for cause in roots}
        for cause in roots[1:]:
            title = "Independent of it" if len(jobs) > 1 and cause.job != roots[0].job else "Or it is"
            parts.append(f"{paint(title + ':', 'bold')} {cause.title} ({cause.label}, {_sure(cause)})")
            parts.append("\n".join(_lines(cause.evidence[:1])))
    if diagnosis.outcome is Outcome.UNKNOWN:
        parts.append(
            wrap(
                "None of the causes that Rekindle knows shows here. These lines report the failure; what stands "
                "above the first of them is the place to look."
            )
        )
        parts.append("\n".join(_lines(diagnosis.unexplained)))
    set_aside = [f"{cause.title} (line {cause.line}, follows from {cause.explained_by})" for cause in rest]
    set_aside += [f"line {item.line}: {item.text}" for item in diagnosis.wrappers]
    if set_aside and diagnosis.outcome is not Outcome.NONE:
        parts.append(
            "Set aside, because they only follow:\n" + "\n".join(f"  {_short(item)}" for item in set_aside[:6])
        )
    return "\n\n".join(part for part in parts if part)


def _head(diagnosis: Diagnosis) -> str:
    count = f"{diagnosis.lines:,} line{'' if diagnosis.lines == 1 else 's'}"
    place = f"{diagnosis.source or 'the log'}, {count}"
    if diagnosis.outcome is Outcome.NONE:
        return f"{paint(diagnosis.summary, 'green')} ({place})"
    if diagnosis.outcome is Outcome.UNKNOWN:
        return f"{paint(diagnosis.summary, 'yellow')} ({place})"
    return f"{paint(diagnosis.summary, 'bold')} ({place})"


def _cause(cause: Cause) -> str:
    job = f", while making {cause.job}" if cause.job else ""
    return "\n\n".join(
        [
            f"cause: {cause.label} ({_sure(cause)}){job}",
            "\n".join(_lines(cause.evidence[:_SHOWN_LINES])),
            wrap(cause.explanation),
            fix(cause.fix),
            "\n".join(f"see {link}" for link in cause.links),
        ]
    ).rstrip()


def fix(what: Fix) -> str:
    lines = [wrap(what.text, first=f"{paint('fix:', 'cyan')} ", indent="     ")]
    lines += [f"       {command}" for command in what.commands]
    return "\n".join(lines)


def _lines(evidence: Sequence[Evidence]) -> list[str]:
    return [f"  line {item.line}: {item.text}" for item in evidence]


def _sure(cause: Cause) -> str:
    return "very likely" if cause.confidence >= 0.85 else "likely" if cause.confidence >= 0.6 else "possible"


def _short(item: str) -> str:
    return item if len(item) <= 76 else item[:72] + " ..."
