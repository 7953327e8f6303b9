"""What each line of a log is: which tool speaks, and whether it reports, warns, probes, wraps or goes on.

The point is what is *not* a failure. A feature probe that fails is how CMake learns; a warning is no error; the
line that says "something failed above" is never the cause; the text of a compile command is nobody's message. An error
of one parallel job is tied to the job it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from rekindle.core.regex import re2
from rekindle.diagnose.scan import LogLine
from rekindle.knowledge.logs.signatures import LineRow, log_lines
from rekindle.knowledge.tables import cached


class LineKind(str, Enum):
    ERROR = "error"
    WARNING = "warning"
    PROBE = "probe"
    WRAPPER = "wrapper"
    COMPLAINT = "complaint"
    SUCCESS = "success"
    GOING = "going"
    PROGRESS = "progress"
    COMMAND = "command"
    QUOTE = "quote"
    TEXT = "text"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A line and what it is. `job` is the target or project it belongs to, where the log says so."""

    number: int
    text: str
    raw: str
    kind: LineKind
    tool: str | None = None
    job: str | None = None
    hit: bool = True


_OPTIONS = re2.Options()
_OPTIONS.max_mem = 128 << 20
_OPTIONS.log_errors = False

# Their errors are errors wherever they stand: parallel jobs write into each other's paragraphs.
_PLAIN_SPEAKERS = frozenset({"python", "compiler", "nvcc", "ld"})
_FAILED_TARGET = re2.compile(r"^FAILED: (?:\[code=-?\d+\] )?(.+?)\s*$")
_MAKE_TARGET = re2.compile(r"\*\*\* \[(?:[^\]\s]+:\d+: )?([^\]]+)\] ")
_PROJECT = re2.compile(r"\[([^\]\[]+\.(?:vcx|cs)proj)\]$")
_ONE_LINER = re2.compile(r'^File "<string>", line \d+, in <module>')
_STEP = re2.compile(r"^\[\d+/\d+\]")
# What CMake says in passing. Two that run at once write it into each other's messages, which go on afterwards.
_STATUS = "-- "


def read(lines: Iterable[LogLine]) -> tuple[Event, ...]:
    """The lines as events, each tied to its job where the log tells."""
    events: list[Event] = []
    job: str | None = None
    block: LineKind | None = None
    for line in lines:
        kind, tool = classify(line.text)
        block = _cmake_block(line, kind, tool, block)
        answers = line.text.startswith(_STATUS)
        opened = events[-1] if events and events[-1].number == line.number - 1 else None
        if opened and opened.kind is LineKind.WARNING and opened.tool == "python" and opened.text.endswith(":"):
            kind, tool = LineKind.WARNING, "python"
        if block is LineKind.WARNING and not answers and not (kind is LineKind.ERROR and tool in _PLAIN_SPEAKERS):
            kind, tool = LineKind.WARNING, "cmake"
        failed = _FAILED_TARGET.match(line.text)
        if failed:
            job = failed.group(1)
        elif _STEP.match(line.text):
            job = None
        project = _PROJECT.search(line.text)
        events.append(
            Event(
                number=line.number,
                text=line.text,
                raw=line.raw,
                kind=kind,
                tool=tool,
                job=project.group(1) if project else job,
                hit=line.hit,
            )
        )
    return tuple(_asked_by_cmake(_tied_to_make(events)))


def _asked_by_cmake(events: list[Event]) -> list[Event]:
    """CMake asks Python things with `python -c`; a traceback of that one line, after which it goes on, is an answer."""
    for index, event in enumerate(events):
        if event.kind is not LineKind.ERROR or event.tool != "python":
            continue
        before = [other.text for other in events[max(0, index - 2) : index]]
        after = next((other.text for other in events[index + 1 :] if other.text), "")
        if any(_ONE_LINER.match(text) for text in before) and after.startswith("-- "):
            events[index] = msgspec.structs.replace(event, kind=LineKind.PROBE, tool="cmake")
            for back in range(max(0, index - 3), index):
                if events[back].text.startswith("Traceback "):
                    events[back] = msgspec.structs.replace(events[back], kind=LineKind.PROBE, tool="cmake")
    return events


def _cmake_block(line: LogLine, kind: LineKind, tool: str | None, block: LineKind | None) -> LineKind | None:
    """CMake's messages have a heading and an indented body: what the body says is as serious as its heading."""
    if tool == "cmake" and kind in (LineKind.WARNING, LineKind.ERROR):
        return kind
    if block is None or not line.text or line.text.startswith(("Call Stack", _STATUS)):
        return block
    before = line.raw[: len(line.raw) - len(line.text)]
    return block if before.endswith("  ") else None


def classify(text: str) -> tuple[LineKind, str | None]:
    if not text:
        return LineKind.TEXT, None
    patterns, lines = _grammar()
    hits = patterns.Match(text[:4000])
    if not hits:
        return LineKind.TEXT, None
    row = lines[min(hits)]
    return LineKind(row.kind), row.tool


def _tied_to_make(events: list[Event]) -> list[Event]:
    """make names the target after its output: give it to the errors just before that have none."""
    for index, event in enumerate(events):
        target = _MAKE_TARGET.search(event.text) if event.tool == "make" and event.kind is LineKind.WRAPPER else None
        if not target:
            continue
        for back in range(index - 1, max(-1, index - 25), -1):
            before = events[back]
            if before.tool == "make" or before.kind is LineKind.PROGRESS:
                break
            if before.kind is LineKind.ERROR and before.job is None:
                events[back] = msgspec.structs.replace(before, job=target.group(1))
    return events


@cached
def _grammar() -> tuple[re2.Set, tuple[LineRow, ...]]:
    """Every pattern in one RE2 set, and the row that each belongs to."""
    patterns = re2.Set.SearchSet(_OPTIONS)
    rows: list[LineRow] = []
    for row in log_lines():
        for pattern in row.match:
            patterns.Add(pattern)
            rows.append(row)
    patterns.Compile()
    return patterns, tuple(rows)
