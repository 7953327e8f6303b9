"""`diagnose`: one log in, one answer out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from rekindle.core.console import clean
from rekindle.core.errors import NotFound
from rekindle.core.redact import redact
from rekindle.diagnose import fix
from rekindle.diagnose.answer import Cause, Diagnosis, Evidence, Outcome
from rekindle.diagnose.events import Event, Kind, read
from rekindle.diagnose.facts import Facts, gather
from rekindle.diagnose.match import matches
from rekindle.diagnose.missing import really_missing
from rekindle.diagnose.rank import Ranked, ranked
from rekindle.diagnose.scan import BLOCK, Kept, scan
from rekindle.diagnose.unwrap import unwrapped

_SHOWN = 240
_WRAPPERS = 12
_UNEXPLAINED = 8


def diagnose_text(text: str | bytes, *, known: Facts | None = None, source: str = "") -> Diagnosis:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return diagnose_blocks([data], known=known, source=source)


def diagnose_file(path: Path, *, known: Facts | None = None) -> Diagnosis:
    return diagnose_blocks(_blocks(path), known=known, source=str(path))


def diagnose_blocks(blocks: Iterable[bytes], *, known: Facts | None = None, source: str = "") -> Diagnosis:
    return answer(scan(blocks), known=known, source=source)


def answer(kept: Kept, *, known: Facts | None = None, source: str = "") -> Diagnosis:
    """What the lines that were kept amount to. Where a failure shows no cause, a console may have cut the lines."""
    found = _answer(kept, known, source)
    joined = unwrapped(kept) if found.outcome is Outcome.UNKNOWN else None
    if joined is None:
        return found
    again = _answer(joined, known, source)
    return again if again.outcome is Outcome.CAUSE else found


def _answer(kept: Kept, known: Facts | None, source: str) -> Diagnosis:
    events = read(kept.lines)
    facts = gather((event.text for event in events), known)
    order = ranked(matches(events, facts), events)
    wrappers = [event for event in events if event.kind is Kind.WRAPPER and event.hit]
    told = {name: str(value) for name in Facts.__struct_fields__ if (value := getattr(facts, name)) not in (None, ())}
    if facts.gpus:
        told["gpus"] = ", ".join(gpu.sm for gpu in facts.gpus)
    if order:
        causes = tuple(_cause(entry, order, events, facts) for entry in order)
        outcome, summary = Outcome.CAUSE, causes[0].title
        unexplained: tuple[Evidence, ...] = ()
    else:
        causes = ()
        outcome, summary, unexplained = _without_cause(events, wrappers)
    return Diagnosis(
        source=source,
        outcome=outcome,
        summary=summary,
        causes=causes,
        wrappers=tuple(_evidence(event) for event in wrappers[:_WRAPPERS]),
        unexplained=unexplained,
        lines=kept.total,
        facts=told,
    )


def _without_cause(events: Sequence[Event], wrappers: Sequence[Event]) -> tuple[Outcome, str, tuple[Evidence, ...]]:
    errors = [event for event in events if event.kind is Kind.ERROR and event.hit]
    last_success = max((event.number for event in events if event.kind is Kind.SUCCESS), default=0)
    reports = [event for event in wrappers if event.number > last_success and not _harmless(event)]
    if not reports and (not errors or last_success > errors[-1].number):
        if not any(event.text for event in events):
            return Outcome.NONE, "The log is empty", ()
        return Outcome.NONE, "Nothing here failed", ()
    shown = errors or reports
    return (
        Outcome.UNKNOWN,
        "Something failed, but no known cause shows in this log",
        tuple(_evidence(event) for event in shown[:_UNEXPLAINED]),
    )


def _harmless(event: Event) -> bool:
    """PowerShell reports whatever a program writes on stderr as an error of its own."""
    return event.tool == "powershell"


def _cause(entry: Ranked, order: Sequence[Ranked], events: Sequence[Event], facts: Facts) -> Cause:
    row = entry.first.cause
    fields: dict[str, str] = {}
    for match in reversed(entry.matches):
        fields |= match.fields
    evidence: dict[int, Evidence] = {}
    for match in entry.matches[:6]:
        evidence[match.event.number] = _evidence(match.event)
    rivals = tuple(
        other.label for other in order if other is not entry and other.first.event.number == entry.first.event.number
    )
    remedy = fix.write(row, fields, facts)
    gone = really_missing(fields["dll"]) if "dll" in fields else ()
    if gone:
        remedy = msgspec.structs.replace(remedy, text=f"Really missing: {'; '.join(gone)}. {remedy.text}")
    return Cause(
        label=entry.label,
        title=row.title,
        family=row.family,
        confidence=entry.sure,
        line=entry.first.event.number,
        evidence=tuple(evidence[number] for number in sorted(evidence)),
        explanation=row.explanation,
        fix=remedy,
        job=entry.first.event.job,
        explained_by=entry.explained_by,
        links=row.links,
        also=rivals,
    )


def _evidence(event: Event) -> Evidence:
    text = event.text if len(event.text) <= _SHOWN else event.text[: _SHOWN - 4] + " ..."
    return Evidence(line=event.number, text=redact(clean(text), names=()))


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            while block := stream.read(BLOCK):
                yield block
    except FileNotFoundError as error:
        message = f"there is no file `{path}`"
        raise NotFound(message, hint="check the path; quote it if it has spaces; `-` reads what is piped in") from error
    except OSError as error:
        message = f"cannot read `{path}`: {error.strerror or error}"
        raise NotFound(message, hint="check the permissions of the file") from error
