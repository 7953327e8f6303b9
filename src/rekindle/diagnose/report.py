"""A diagnosis as a person reads it: in a terminal, or as Markdown to paste into an issue."""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.core.console import paint, wrap
from rekindle.core.findings import Fix
from rekindle.diagnose.answer import LIKELY, VERY_LIKELY, Cause, Diagnosis, EvidenceLine, LogOutcome

_SHOWN_LINES = 4
_FOLLOWING = 6


def text(diagnosis: Diagnosis) -> str:
    parts = [_head(diagnosis)]
    roots = _roots(diagnosis)
    if roots:
        parts.append(_cause(roots[0]))
        for cause in roots[1:]:
            relation = paint(_relation(cause, roots) + ":", "bold")
            parts.append(f"{relation} {cause.title} ({cause.label}, {_sure(cause)})")
            parts.append("\n".join(_lines(cause.evidence[:1])))
    if diagnosis.outcome is LogOutcome.UNKNOWN and diagnosis.unexplained:
        parts += [wrap(_unknown(diagnosis)), "\n".join(_lines(diagnosis.unexplained))]
    following = _following(diagnosis)
    if following:
        parts.append("Consequences of the cause above:\n" + "\n".join(f"  {_short(item)}" for item in following))
    return "\n\n".join(part for part in parts if part)


def markdown(diagnosis: Diagnosis) -> str:
    """Headings, the lines in a fence, the commands in another: what an issue tracker renders."""
    roots = _roots(diagnosis)
    parts = [f"### {diagnosis.summary}", f"`{diagnosis.source or 'log'}`, {_count(diagnosis)}"]
    if roots:
        first = roots[0]
        parts += [
            f"**Cause:** `{first.label}` ({_sure(first)})" + (f", while making `{first.job}`" if first.job else ""),
            _fence(_lines(first.evidence[:_SHOWN_LINES])),
            first.explanation,
            f"**Fix:** {first.fix.text}",
        ]
        parts += [_fence(first.fix.commands)] if first.fix.commands else []
        parts += [f"**{_relation(cause, roots)}:** {cause.title} (`{cause.label}`)" for cause in roots[1:]]
        parts += [f"See {link}" for link in first.links]
    elif diagnosis.outcome is LogOutcome.UNKNOWN and diagnosis.unexplained:
        parts += [_unknown(diagnosis), _fence(_lines(diagnosis.unexplained))]
    known = [_known(name, value) for name, value in diagnosis.facts.items()]
    if any(known):
        parts.append("Known: " + ", ".join(filter(None, known)))
    return "\n\n".join(parts)


_YES = {
    "developer_prompt": "a developer prompt",
    "msvc": "MSVC",
    "triton": "Triton is in use",
    "mac": "macOS",
    "wsl": "WSL",
    "docker": "in a container",
    "names_torch": "the log names torch",
    "portable": "a portable Python",
    "importing_torch": "torch is being imported",
    "torch_lacks_card": "torch has no code for the GPU",
    "cudnn_lacks_card": "cuDNN has no code for the GPU",
}


def _known(name: str, value: str) -> str:
    """A fact as a person says it; of what is only yes or no, the yes."""
    if value in ("True", "False"):
        return _YES.get(name, name.replace("_", " ")) if value == "True" else ""
    return f"{name.replace('_', ' ')} {value}"


def fix(what: Fix) -> str:
    lines = [wrap(what.text, first=f"{paint('fix:', 'cyan')} ", indent="     ")]
    lines += [f"       {command}" for command in what.commands]
    return "\n".join(lines)


def _head(diagnosis: Diagnosis) -> str:
    colour = {LogOutcome.NONE: "green", LogOutcome.UNKNOWN: "yellow", LogOutcome.CAUSE: "bold"}[diagnosis.outcome]
    return f"{paint(diagnosis.summary, colour)} ({diagnosis.source or 'the log'}, {_count(diagnosis)})"


def _count(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.lines:,} line{'' if diagnosis.lines == 1 else 's'}"


def _roots(diagnosis: Diagnosis) -> list[Cause]:
    return [cause for cause in diagnosis.causes if cause.explained_by is None]


def _relation(cause: Cause, roots: Sequence[Cause]) -> str:
    jobs = {root.job for root in roots}
    return "Independent of it" if len(jobs) > 1 and cause.job != roots[0].job else "Or it is"


def _unknown(diagnosis: Diagnosis) -> str:
    if diagnosis.wrappers:
        return (
            "The log reports a failure, but not one that Rekindle knows. These lines look most like it; read what "
            "stands above the first of them."
        )
    return (
        "Nothing here says that the work succeeded, and no line is a failure that Rekindle knows. These lines look "
        "most like one."
    )


def _following(diagnosis: Diagnosis) -> list[str]:
    if diagnosis.outcome is not LogOutcome.CAUSE:
        return []
    explained = [cause for cause in diagnosis.causes if cause.explained_by is not None]
    items = [f"{cause.title} (line {cause.line}, follows from {cause.explained_by})" for cause in explained]
    items += [f"line {item.line}: {item.text}" for item in diagnosis.wrappers]
    return items[:_FOLLOWING]


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


def _lines(evidence: Sequence[EvidenceLine]) -> list[str]:
    return [f"  line {item.line}: {item.text}" for item in evidence]


def _fence(lines: Sequence[str]) -> str:
    """A fence longer than any run of backticks inside, so that what a log says stays inside it."""
    ticks = "`" * max(3, 1 + max((_longest_run(line) for line in lines), default=0))
    return "\n".join([f"{ticks}text", *(line.strip() for line in lines), ticks])


def _longest_run(line: str) -> int:
    best = run = 0
    for letter in line:
        run = run + 1 if letter == "`" else 0
        best = max(best, run)
    return best


def _sure(cause: Cause) -> str:
    return "very likely" if cause.confidence >= VERY_LIKELY else "likely" if cause.confidence >= LIKELY else "possible"


def _short(item: str) -> str:
    return item if len(item) <= 76 else item[:72] + " ..."
