"""A diagnosis as a person reads it: in a terminal, or as Markdown to paste into an issue."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rekindle.core.console import paint, wrap
from rekindle.core.findings import Fix
from rekindle.diagnose.answer import LIKELY, VERY_LIKELY, Cause, Diagnosis, EvidenceLine, LogOutcome
from rekindle.diagnose.outcome import CUT, NO_SIGN

_SHOWN_LINES = 4
_FOLLOWING = 6
_WIDE = 76


def text(diagnosis: Diagnosis, *, everything: bool = False) -> str:
    """The cause, the thing to do, the lines that show it; all that may help besides with `everything`."""
    roots = _roots(diagnosis)
    parts = [_head(diagnosis)]
    if roots:
        first = roots[0]
        parts += [fix(first.fix), "\n".join(_lines(first.evidence[:_SHOWN_LINES]))]
        if everything:
            parts += [wrap(first.explanation), *(fix(each) for each in first.more)]
            parts += [f"see {link}" for link in first.links]
        for cause in roots[1:]:
            parts.append(f"{paint(_relation(cause, roots) + ':', 'bold')} {cause.title} ({cause.label})")
            parts += [fix(cause.fix)] if everything else []
    if diagnosis.outcome is LogOutcome.UNKNOWN and diagnosis.lines:
        parts += [wrap(_unknown(diagnosis)), "\n".join(_lines(diagnosis.unexplained)), _bundle(diagnosis)]
    clashes = [pair.text for pair in diagnosis.judged if pair.verdict == "clash"]
    agreed = roots and any(pair.label == roots[0].label and pair.verdict == "clash" for pair in diagnosis.judged)
    if roots and clashes and (everything or not agreed):
        parts.append("\n".join(wrap(f"{each[:1].upper()}{each[1:]}.", first="Also: ", indent="  ") for each in clashes))
    following = _following(diagnosis) if everything else []
    if following:
        parts.append("Consequences of the cause above:\n" + "\n".join(f"  {item}" for item in following))
    if roots and not everything:
        parts.append(f"`--all` shows why, and what else may help ({roots[0].label}).")
    return "\n\n".join(part for part in parts if part)


def _bundle(diagnosis: Diagnosis) -> str:
    """What was read and what fits: for a person who asks others, and for an assistant."""
    read = [f"  line {each.line}: {each.kind} {each.value}" for each in diagnosis.entities if each.read]
    unread = [f"  line {each.line}: {each.value}" for each in diagnosis.entities if not each.read]
    pairs = [f"  {pair.pair}: {pair.verdict} ({pair.text})" for pair in diagnosis.judged]
    groups = (("Read in the log:", read), ("Not known to Rekindle:", unread), ("Held against the tables:", pairs))
    parts = ["\n".join([title, *lines]) for title, lines in groups if lines]
    parts += [f"What runs on this card:\n{fix(diagnosis.runs)}"] if diagnosis.runs else []
    parts.append("\n".join(["To learn more:", *(wrap(step, first="  - ", indent="    ") for step in diagnosis.next)]))
    return "\n\n".join(parts)


def markdown(diagnosis: Diagnosis) -> str:
    """Headings, the lines in a fence, the commands in another: what an issue tracker renders."""
    roots = _roots(diagnosis)
    parts = [f"### {diagnosis.summary}", f"{_code(diagnosis.source or 'log')}, {_count(diagnosis)}"]
    if roots:
        first = roots[0]
        parts += [
            f"**Cause:** `{first.label}` ({_sure(first)})"
            + (f", while making {_code(first.job)}" if first.job else ""),
            _fence(_lines(first.evidence[:_SHOWN_LINES])),
            first.explanation,
        ]
        for number, each in enumerate((first.fix, *first.more)):
            parts.append(f"**{'Also' if number else 'Fix'}:** {each.text}")
            parts += [_fence(each.commands)] if each.commands else []
        parts += [f"**{_relation(cause, roots)}:** {cause.title} (`{cause.label}`)" for cause in roots[1:]]
        parts += [f"See {link}" for link in first.links]
    elif diagnosis.outcome is LogOutcome.UNKNOWN and diagnosis.lines:
        shown = [_fence(_lines(diagnosis.unexplained))] if diagnosis.unexplained else []
        parts += [_unknown(diagnosis), *shown, _fence(_bundle(diagnosis).splitlines())]
    known = [_known(name, value) for name, value in diagnosis.facts.items()]
    if any(known):
        parts.append("Known: " + ", ".join(filter(None, known)))
    return "\n\n".join(parts)


def _known(name: str, value: str) -> str:
    """A fact as a person says it; of what is only yes or no, the yes."""
    if value in ("True", "False"):
        told = name.replace("_lacks_card", " has no code for the GPU").replace("_", " ")
        return told if value == "True" else ""
    return f"{name.replace('_', ' ')} {value}"


def fix(what: Fix) -> str:
    return "\n".join([wrap(what.text), *(f"    {paint(command, 'cyan')}" for command in what.commands)])


def _head(diagnosis: Diagnosis) -> str:
    colour = {LogOutcome.NONE: "green", LogOutcome.UNKNOWN: "yellow", LogOutcome.CAUSE: "bold"}[diagnosis.outcome]
    sure = f"{_sure(diagnosis.causes[0])}; " if diagnosis.causes else ""
    job = diagnosis.causes[0].job if diagnosis.causes else None
    made = f", while making {job}" if job else ""
    said = wrap(f"{diagnosis.summary} ({sure}{diagnosis.source or 'the log'}, {_count(diagnosis)}{made})")
    return said.replace(diagnosis.summary, paint(diagnosis.summary, colour), 1)


def _count(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.lines:,} line{'' if diagnosis.lines == 1 else 's'}"


def _roots(diagnosis: Diagnosis) -> list[Cause]:
    return [cause for cause in diagnosis.causes if cause.explained_by is None]


def _relation(cause: Cause, roots: Sequence[Cause]) -> str:
    jobs = {root.job for root in roots}
    return "Independent of it" if len(jobs) > 1 and cause.job != roots[0].job else "Or it is"


def _unknown(diagnosis: Diagnosis) -> str:
    if diagnosis.summary == CUT:
        return "What failed stands below the last of these lines, and was not copied: add it, and ask again."
    if diagnosis.summary == NO_SIGN:
        ends = " It ends with these lines." if diagnosis.unexplained else ""
        return f"No line says that something went wrong, and none that the work is done.{ends}"
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
    return [item if len(item) <= _WIDE else item[: _WIDE - 4] + " ..." for item in items[:_FOLLOWING]]


def _lines(evidence: Sequence[EvidenceLine]) -> list[str]:
    return [f"  line {item.line}: {item.text}" for item in evidence]


def _code(text: str) -> str:
    """A name of somebody's in a sentence, which its own backticks and lines do not end."""
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks} {' '.join(text.split())} {ticks}" if "`" in text else f"`{' '.join(text.split())}`"


def _fence(lines: Sequence[str]) -> str:
    """A fence longer than any run of backticks inside, so that what a log says stays inside it."""
    runs = (len(run) for line in lines for run in re.findall("`+", line))
    ticks = "`" * max(3, 1 + max(runs, default=0))
    return "\n".join([f"{ticks}text", *(line.strip() for line in lines), ticks])


def _sure(cause: Cause) -> str:
    return "very likely" if cause.confidence >= VERY_LIKELY else "likely" if cause.confidence >= LIKELY else "possible"
