"""The signatures, run over the events of a log. All of RE2: linear in the text whatever the text is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import re2

from rekindle.diagnose.events import Event, Kind
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.logs.signatures import CauseRow, Signature, When, causes
from rekindle.knowledge.tables import cached

# What is never anybody's message, and what is one only for signatures that say so.
_SILENT = frozenset({Kind.COMMAND, Kind.QUOTE, Kind.PROGRESS, Kind.SUCCESS, Kind.GOING})
_GUARDED = frozenset({Kind.WARNING, Kind.PROBE, Kind.WRAPPER})
_LONGEST = 8_000


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A signature that holds, at an event. `fields` are the named groups of the pattern."""

    cause: CauseRow
    signature: Signature
    event: Event
    index: int
    fields: dict[str, str]


class _Catalogue:
    """Every pattern in one RE2 set: one pass over a line says which of them are in it."""

    def __init__(self, rows: Sequence[CauseRow]) -> None:
        options = re2.Options()
        options.max_mem = 512 << 20
        options.log_errors = False
        self._set = re2.Set.SearchSet(options)
        self.entries: list[tuple[CauseRow, Signature]] = []
        for row in rows:
            for signature in row.signature:
                for pattern in signature.match:
                    self._set.Add(pattern)
                    self.entries.append((row, signature))
        self._set.Compile()

    def find(self, text: str) -> list[tuple[CauseRow, Signature]]:
        found = self._set.Match(text[:_LONGEST])
        return [self.entries[index] for index in found] if found else []


@cached
def catalogue() -> _Catalogue:
    return _Catalogue(causes())


@lru_cache(maxsize=2048)
def compiled(pattern: str) -> re2._Regexp:
    return re2.compile(pattern)


def matches(events: Sequence[Event], facts: Facts) -> list[Match]:
    """Every signature that holds anywhere, each at the first event of each job that shows it."""
    everything = "\n".join(event.text for event in events)
    held: dict[tuple[str, str], bool] = {}
    found: list[Match] = []
    seen: set[tuple[str, str, str | None]] = set()
    for index, event in enumerate(events):
        if event.kind in _SILENT or not event.text:
            continue
        for row, signature in catalogue().find(event.text):
            if event.kind in _GUARDED and not signature.warns:
                continue
            key = (row.id, signature.id, event.job)
            if key in seen or not _facts_allow(signature.when, facts):
                continue
            if not _log_allows(signature, everything, held) or not _near(signature, events, index):
                continue
            seen.add(key)
            fields = _fields(signature.match, event.text) | _near_fields(signature, events, index)
            found.append(Match(cause=row, signature=signature, event=event, index=index, fields=fields))
    return found


def _log_allows(signature: Signature, everything: str, held: dict[tuple[str, str], bool]) -> bool:
    def has(pattern: str) -> bool:
        key = (signature.id, pattern)
        if key not in held:
            held[key] = compiled(f"(?m:{pattern})").search(everything) is not None
        return held[key]

    return all(has(pattern) for pattern in signature.log) and not any(has(pattern) for pattern in signature.absent)


def _window(signature: Signature, events: Sequence[Event], index: int) -> Sequence[Event]:
    here = events[index].number
    low, high = index, index
    while low > 0 and events[low - 1].number >= here - signature.within:
        low -= 1
    while high + 1 < len(events) and events[high + 1].number <= here + signature.within:
        high += 1
    return events[low : high + 1]


def _near(signature: Signature, events: Sequence[Event], index: int) -> bool:
    if not signature.near:
        return True
    around = _window(signature, events, index)
    return all(any(compiled(pattern).search(event.text) for event in around) for pattern in signature.near)


def _fields(patterns: Sequence[str], text: str) -> dict[str, str]:
    """What the named groups of all these patterns catch; the first that catches a name decides."""
    fields: dict[str, str] = {}
    for pattern in patterns:
        match = compiled(pattern).search(text) if "(?P<" in pattern else None
        if match:
            fields = {name: value for name, value in match.groupdict().items() if value} | fields
    return fields


def _near_fields(signature: Signature, events: Sequence[Event], index: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    for pattern in signature.near:
        if "(?P<" not in pattern:
            continue
        for event in _window(signature, events, index):
            match = compiled(pattern).search(event.text)
            if match:
                fields |= {name: value for name, value in match.groupdict().items() if value}
                break
    return fields


def _facts_allow(when: When | None, facts: Facts) -> bool:
    if when is None:
        return True
    if when.os and facts.os and when.os != facts.os:
        return False
    prompts = (when.developer_prompt, facts.developer_prompt)
    if None not in prompts and prompts[0] is not prompts[1]:
        return False
    if when.msvc is not None and facts.msvc is not None and when.msvc is not facts.msvc:
        return False
    if facts.gpus:
        newest = max(facts.gpus)
        if when.gpu_below and newest >= Capability.parse(when.gpu_below):
            return False
        if when.gpu_from and newest < Capability.parse(when.gpu_from):
            return False
    return True
