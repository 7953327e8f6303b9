"""From the signatures that hold to the causes in order: what explains what, what is specific, what came first."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from rekindle.diagnose.answer import LIKELY, POSSIBLE, VERY_LIKELY, LogOutcome
from rekindle.diagnose.events import Event, LineKind
from rekindle.diagnose.evidence import Judged
from rekindle.diagnose.match import SPECIFIC, SignatureMatch
from rekindle.diagnose.outcome import complained, judge

_FAINT = 15
# A compiler's own error: `k.cu(1): error: …`, `a.cpp:12:5: error: …`.
_COMPILING = re.compile(
    r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|inl)(?:\(\d+(?:,\d+)?\)\s?|(?::\d+){1,2}): (?:fatal )?error"
)


class RankedCause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause with the matches that show it. `explained_by` names the cause that accounts for it."""

    label: str
    matches: tuple[SignatureMatch, ...]
    score: float
    sure: float
    explained_by: str | None = None

    @property
    def first(self) -> SignatureMatch:
        return self.matches[0]


def ranked(found: Sequence[SignatureMatch], events: Sequence[Event], pairs: Sequence[Judged]) -> list[RankedCause]:
    """The causes, the one to fix first in front. Soft signs count only where the work did not succeed."""
    broken = failed(events) or judge(events).outcome is not LogOutcome.NONE
    solid = [match for match in found if not match.signature.soft or broken]
    if _goes_on_regardless(events):
        solid = [match for match in solid if not match.cause.running]
    labels: dict[str, list[SignatureMatch]] = {}
    for match in solid:
        labels.setdefault(match.cause.id, []).append(match)
    clashes = {pair.label for pair in pairs if pair.verdict == "clash"}
    entries = [_entry(label, matches, label in clashes) for label, matches in labels.items()]
    entries = [_beside(entry, entries) or _explained(entry, entries) for entry in entries]
    entries.sort(key=lambda entry: (entry.explained_by is not None, -entry.score, entry.first.event.number))
    return [_weighed(entry, entries, events) for entry in entries]


def _weighed(entry: RankedCause, entries: Sequence[RankedCause], events: Sequence[Event]) -> RankedCause:
    """One that another explains or outranks is only possible; one that is the last word of the log is very likely."""
    if entry.explained_by is not None or entry is not entries[0]:
        return msgspec.structs.replace(entry, sure=POSSIBLE)
    rivals = [other for other in entries[1:] if other.explained_by is None]
    if entry.sure != LIKELY or rivals:
        return entry
    errors = [event.number for event in events if event.kind is LineKind.ERROR]
    first = entry.first
    told = first.event.kind is LineKind.ERROR or (first.event.kind is LineKind.WARNING and first.signature.warns)
    last = told and first.event.number >= max(errors, default=0) and first.signature.weight >= SPECIFIC
    return msgspec.structs.replace(entry, sure=VERY_LIKELY) if last else entry


def failed(events: Sequence[Event]) -> bool:
    """Whether the log itself says that something went wrong: an error or the report of one."""
    return any(event.kind in (LineKind.ERROR, LineKind.WRAPPER) and event.hit for event in events)


def _goes_on_regardless(events: Sequence[Event]) -> bool:
    """A program that trains or serves, with no error anywhere, is not stopped by what it was warned of."""
    going = [event for event in events if event.kind is LineKind.GOING and event.tool == "any"]
    return len(going) > 1 and not failed(events) and not complained(events)


def _entry(label: str, matches: list[SignatureMatch], agreed: bool) -> RankedCause:
    """`agreed`: the things that the log names clash in just this way."""
    best = sorted(matches, key=lambda match: (-match.signature.weight, match.event.number))
    distinct = len({match.signature.id for match in matches})
    told = best[0].event.kind is not LineKind.WARNING or best[0].signature.weight >= SPECIFIC
    plain = not best[0].signature.vague and told
    twice = distinct > 1 and plain
    return RankedCause(
        label=label,
        matches=tuple(best),
        score=best[0].signature.weight + min(distinct - 1, 3),
        sure=VERY_LIKELY if agreed or twice else LIKELY if plain else POSSIBLE,
    )


def _beside(entry: RankedCause, entries: Sequence[RankedCause]) -> RankedCause | None:
    """A warning about the card or the driver, in a build that a compiler's error has ended, is not why it ended.

    torch warns of them whenever it is imported, and setup.py of every extension imports it.
    """
    if not _only_warned(entry):
        return None
    for other in entries:
        error = other.first.event
        if not other.first.cause.running and error.kind is LineKind.ERROR and _COMPILING.search(error.text):
            return msgspec.structs.replace(entry, explained_by=other.label)
    return None


def _only_warned(entry: RankedCause) -> bool:
    return entry.first.cause.running and all("Warning: " in match.event.text for match in entry.matches)


def _explained(entry: RankedCause, entries: Sequence[RankedCause]) -> RankedCause:
    for other in entries:
        # A faint sign does not explain away a plain one.
        aside = _only_warned(other) and _COMPILING.search(entry.first.event.text)
        plain = other.score + _FAINT >= entry.score and not aside
        if other.label != entry.label and plain and entry.label in other.first.cause.over:
            # Two causes that claim to explain each other: the more specific one does.
            mutual = other.label in entry.first.cause.over
            if not mutual or other.score > entry.score:
                return msgspec.structs.replace(entry, explained_by=other.label)
    return entry
