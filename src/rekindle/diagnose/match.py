"""The signatures, run over the events of a log. All of RE2: linear in the text whatever the text is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

import msgspec

from rekindle.core.regex import re2
from rekindle.core.version import unreal
from rekindle.diagnose.events import Event, LineKind
from rekindle.diagnose.expressions import World, facts_of, holds
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.logs.extension_homes import home
from rekindle.knowledge.logs.signatures import OTHER_VENDOR, CauseRow, LogSignature, cause, causes
from rekindle.knowledge.tables import cached

# What is never anybody's message, and what is one only for signatures that say so.
_SILENT = frozenset({LineKind.COMMAND, LineKind.QUOTE, LineKind.PROGRESS, LineKind.SUCCESS, LineKind.GOING})
_GUARDED = frozenset({LineKind.WARNING, LineKind.PROBE, LineKind.WRAPPER})
_LONGEST = 8_000
# From this weight on a message has few other causes.
SPECIFIC = 75
_CUT, _NARROW, _FRAMES = 48, 32, 40
_FRAME = re2.compile(
    r"""^File "?[^"]*(?:site|dist)-packages[/\\]([\w-]+)"""
    r"""|^[~\w./\\:-]*(?:site|dist)-packages[/\\]([\w-]+)\S* in <module>"""
)
_IMPORTED = re2.compile(r"^(?:>>> )?(?:from|import) ([A-Za-z]\w*)")
_COMPILED_PART = re2.compile(r"^(?:>>> )?from ([A-Za-z]\w*)(?:\.\w+)* import _(?:C|ext)\b")
# A compiled file of a package, and a compiled module by its name.
_COMPILED = re2.compile(r"""(?:site|dist)-packages[/\\]([A-Za-z]\w*)(?:[/\\] ?)?[^\s:'"]*\.(?:so|pyd|dll)\b""")
_IMPORTING = re2.compile(r"DLL load failed while importing (\w+)")
# Folders of packages in which other packages' libraries lie.
_SHARED_FOLDERS = frozenset({"nvidia", "torch", "numpy"})
# How a new message begins, whatever came before it.
_OPENS = re2.compile(r"^(?:File |Traceback|\w+(?:Error|Warning|Exception)\b|\d+[|>:]|from |import |return |raise )")


class SignatureMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A signature that holds, at an event. `fields` are the named groups of the pattern."""

    cause: CauseRow
    signature: LogSignature
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
        self.entries: list[tuple[CauseRow, LogSignature]] = []
        for row in rows:
            for signature in row.signature:
                for pattern in signature.match:
                    self._set.Add(pattern)
                    self.entries.append((row, signature))
        self._set.Compile()

    def find(self, text: str) -> list[tuple[CauseRow, LogSignature]]:
        found = self._set.Match(text[:_LONGEST])
        return [self.entries[index] for index in sorted(found)] if found else []


@cached
def catalogue() -> _Catalogue:
    return _Catalogue(causes())


@lru_cache(maxsize=2048)
def compiled(pattern: str) -> re2._Regexp:
    return re2.compile(pattern)


def matches(events: Sequence[Event], facts: Facts, *, warned: bool = False) -> list[SignatureMatch]:
    """Every signature that holds anywhere, each at the first event of each job that shows it.

    `warned`: a warning of Python counts like any line, where the message has one cause only.
    """
    held: dict[tuple[str, str], bool] = {}
    world = World(fields={}, values={}, facts=facts_of(facts))
    found: list[SignatureMatch] = []
    seen: set[tuple[str, str, str | None]] = set()
    for index, event in enumerate(events):
        if event.kind in _SILENT or not event.text:
            continue
        text, found_here = _spoken(events, index)
        for row, signature in found_here:
            if event.kind in _GUARDED and not (signature.warns or (warned and _plain_warning(event, signature))):
                continue
            key = (row.id, signature.id, event.job)
            if key in seen or (signature.when and not holds(signature.when, world)):
                continue
            if not _log_allows(signature, events, held) or not _near(signature, events, index, held):
                continue
            seen.add(key)
            fields = _fields(signature.match, text) | _near_fields(signature, events, index)
            fields.setdefault("failing", failing_module(events, index))
            found.append(SignatureMatch(cause=row, signature=signature, event=event, index=index, fields=fields))
    other = cause(OTHER_VENDOR) if facts.vendor else None
    return [msgspec.structs.replace(each, cause=other) if other and each.cause.nvidia else each for each in found]


def _plain_warning(event: Event, signature: LogSignature) -> bool:
    told = event.kind is LineKind.WARNING and event.tool == "python" and "Warning: " in event.text
    return told and signature.weight >= SPECIFIC and not signature.vague


def _spoken(events: Sequence[Event], index: int) -> tuple[str, list[tuple[CauseRow, LogSignature]]]:
    """What the line shows, and what it shows together with the next one where a console or a mailer cut it in two."""
    here = events[index]
    alone = catalogue().find(here.text)
    whole = joined(events, index)
    if whole is None:
        return here.text, alone
    after = {signature.id for _, signature in catalogue().find(events[index + 1].text)}
    both = [pair for pair in catalogue().find(whole) if pair in alone or pair[1].id not in after]
    return whole, both


def joined(events: Sequence[Event], index: int) -> str | None:
    """The line and the next as one, if it looks cut: long, without an end of its own, and the next goes on."""
    if index + 1 >= len(events):
        return None
    here, after = events[index], events[index + 1]
    if after.number != here.number + 1 or after.kind is not LineKind.TEXT or not after.text:
        return None
    # A narrow console cuts between words: the next line then goes on in small letters.
    if len(here.raw) < (_NARROW if after.text[0].islower() else _CUT):
        return None
    if here.text[-1] in ".:;!?)]}>\"'`," or not (after.text[0].isalnum() or after.text[0] in "('"):
        return None
    return None if _OPENS.match(after.text) else f"{here.text} {after.text}"


def failing_module(events: Sequence[Event], index: int) -> str:
    """The package whose file the message names, or in which a traceback ends: `torch` where none shows."""
    named = _COMPILED.search(events[index].text)
    if named and named.group(1) not in _SHARED_FOLDERS:
        return str(named.group(1))
    importing = _IMPORTING.search(events[index].text)
    if importing and home(importing.group(1)) is not None:
        return str(importing.group(1))
    for event in reversed(events[max(0, index - _FRAMES) : index]):
        if event.text.startswith("Traceback "):
            break
        frame = _FRAME.search(event.text)
        if frame:
            return str(frame.group(1) or frame.group(2))
        imported = _IMPORTED.search(event.text)
        if imported and (home(imported.group(1)) is not None or _COMPILED_PART.search(event.text)):
            return str(imported.group(1))
    again = _said_again(events, index)
    return failing_module(events, again) if again is not None else "torch"


def _said_again(events: Sequence[Event], index: int) -> int | None:
    """A program that prints the message and then the traceback, whose last line it is: where it ends."""
    behind = events[index + 1 : index + 1 + _FRAMES]
    opened = next((place for place, event in enumerate(behind[:6]) if event.text.startswith("Traceback ")), None)
    if opened is None:
        return None
    tail, frames = events[index].text[-40:], enumerate(behind[opened:], start=index + 1 + opened)
    return next((place for place, event in frames if event.text.endswith(tail)), None)


def _log_allows(signature: LogSignature, events: Sequence[Event], held: dict[tuple[str, str], bool]) -> bool:
    def has(pattern: str) -> bool:
        key = (signature.id, pattern)
        if key not in held:
            texts = (
                ["\n".join(event.text for event in events)] if r"\n" in pattern else [event.text for event in events]
            )
            held[key] = any(compiled(pattern).search(text) for text in texts)
        return held[key]

    return all(has(pattern) for pattern in signature.log) and not any(has(pattern) for pattern in signature.absent)


def _window(signature: LogSignature, events: Sequence[Event], index: int) -> Sequence[Event]:
    here, number = events[index].number, attrgetter("number")
    low = bisect_left(events, here - signature.within, hi=index, key=number)
    return events[low : bisect_right(events, here + signature.within, lo=index, key=number)]


def _near(signature: LogSignature, events: Sequence[Event], index: int, held: dict[tuple[str, str], bool]) -> bool:
    if not signature.near and not signature.unless:
        return True
    around = {event.text for event in _window(signature, events, index)}

    def shows(pattern: str, text: str) -> bool:
        # The lines around a line are those around the next one, too.
        if (pattern, text) not in held:
            held[pattern, text] = bool(compiled(pattern).search(text))
        return held[pattern, text]

    def has(pattern: str) -> bool:
        return any(shows(pattern, text) for text in around)

    return all(has(pattern) for pattern in signature.near) and not any(has(pattern) for pattern in signature.unless)


def _fields(patterns: Sequence[str], text: str) -> dict[str, str]:
    """What the named groups of all these patterns catch; the first that catches a name decides."""
    fields: dict[str, str] = {}
    for pattern in patterns:
        match = compiled(pattern).search(text) if "(?P<" in pattern else None
        if match:
            fields = _caught(match) | fields
    return fields


def _near_fields(signature: LogSignature, events: Sequence[Event], index: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    for pattern in signature.near:
        if "(?P<" not in pattern:
            continue
        for event in _window(signature, events, index):
            match = compiled(pattern).search(event.text)
            if match:
                fields |= _caught(match)
                break
    return fields


def _caught(match: re2._Match[str]) -> dict[str, str]:
    return {name: value for name, value in match.groupdict().items() if value and not unreal(value)}
