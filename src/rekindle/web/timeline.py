"""A build as bars on slots: what ran when, beside what, for how long.

Ninja logs when each command began and ended, in milliseconds since that Ninja started. A build that was stopped and
resumed is several runs in one log, each beginning at nought; they are laid one behind the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rekindle.build.governor.record import Compile
from rekindle.build.progress import outputs
from rekindle.core.redact import without_secrets
from rekindle.formats.ninja_log import NinjaStep

KINDS = {"cuda": "CUDA", "cxx": "C++", "c": "C", "link": "link", "other": "other"}


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One command, on the slot it occupied."""

    name: str
    target: str
    kind: str
    slot: int
    start: float
    seconds: float
    peak_mb: float | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    bars: tuple[Bar, ...]
    slots: int
    """The most commands at one time."""
    runs: int
    """How often Ninja was started."""
    wall: float
    """Seconds from the first command to the last, without the time between two runs."""
    work: float
    """Seconds of all commands, one after the other."""

    @property
    def parallel(self) -> float:
        """How many commands ran at a time, on average."""
        return self.work / self.wall if self.wall else 0.0

    def slowest(self, count: int = 15) -> list[Bar]:
        return sorted(self.bars, key=lambda bar: -bar.seconds)[:count]

    def tail(self) -> float:
        """Seconds at the end during which only one command ran: what the long pole cost."""
        ends = sorted((bar.start + bar.seconds for bar in self.bars), reverse=True)
        return ends[0] - ends[1] if len(ends) > 1 and self.slots > 1 else 0.0

    def by_target(self) -> list[tuple[str, int, float]]:
        """Target, commands, seconds; the heaviest first."""
        found: dict[str, list[float]] = {}
        for bar in self.bars:
            found.setdefault(bar.target or "other", []).append(bar.seconds)
        return sorted(((name, len(each), sum(each)) for name, each in found.items()), key=lambda row: -row[2])


def timeline(steps: Sequence[NinjaStep], compiles: Iterable[Compile] = ()) -> Timeline:
    peaks = {each.object: each.peak_kb / 1024 for each in compiles if each.peak_kb}
    bars: list[Bar] = []
    offset, runs = 0.0, 0
    for run in _runs(steps):
        runs += 1
        placed = _placed(run, offset, peaks)
        bars += placed
        offset = max((bar.start + bar.seconds for bar in placed), default=offset)
    return Timeline(
        bars=tuple(bars),
        slots=max((bar.slot for bar in bars), default=-1) + 1,
        runs=runs,
        wall=offset,
        work=sum(bar.seconds for bar in bars),
    )


def _runs(steps: Iterable[NinjaStep]) -> list[list[NinjaStep]]:
    """The log divided where the clock begins anew: lines are written as commands end, so ends only grow in one run."""
    found: list[list[NinjaStep]] = []
    last = None
    seen: set[tuple[int, int, str]] = set()
    for step in steps:
        if last is None or step.end < last:
            found.append([])
            seen = set()
        last = step.end
        # One command with several outputs has a line for each.
        if (key := (step.start, step.end, step.command)) not in seen:
            seen.add(key)
            found[-1].append(step)
    return found


def _placed(run: Sequence[NinjaStep], offset: float, peaks: Mapping[str, float]) -> list[Bar]:
    """Each command on the first slot that is free when it begins."""
    if not run:
        return []
    first = min(step.start for step in run)
    # Two heaps, because a log may have thousands of commands at one time: slots by when they end, and free ones.
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    bars = []
    for step in sorted(run, key=lambda each: (each.start, each.end)):
        while busy and busy[0][0] <= step.start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (step.end, slot))
        bars.append(_bar(step, slot, offset + (step.start - first) / 1000, peaks))
    return bars


class Growing:
    """The timeline of a build that still runs: bars come as commands end, and stay where they are."""

    def __init__(self) -> None:
        self.bars: list[Bar] = []
        self._read = 0
        self._last: int | None = None
        self._offset = 0.0
        self._first = 0
        self._busy: list[list[tuple[float, float]]] = []
        self._seen: set[tuple[int, int, str]] = set()

    def take(self, steps: Sequence[NinjaStep], compiles: Iterable[Compile] = ()) -> None:
        """All steps of the log so far; those that were taken before are passed over."""
        if len(steps) < self._read:
            # Ninja rewrites a log that has grown too long, and keeps the last line of each output.
            self._read = len(steps)
            return
        peaks = {each.object: each.peak_kb / 1024 for each in compiles if each.peak_kb}
        for step in steps[self._read :]:
            self._add(step, peaks)
        self._read = len(steps)

    def _add(self, step: NinjaStep, peaks: Mapping[str, float]) -> None:
        if self._last is None or step.end < self._last:
            self._offset = max((bar.start + bar.seconds for bar in self.bars), default=0.0)
            self._first, self._seen, self._busy = step.start, set(), []
        self._last = step.end
        key = (step.start, step.end, step.command)
        if key in self._seen:
            return
        self._seen.add(key)
        start = self._offset + max(0, step.start - self._first) / 1000
        self.bars.append(_bar(step, self._slot(start, start + step.milliseconds / 1000), start, peaks))

    def _slot(self, start: float, end: float) -> int:
        for number, taken in enumerate(self._busy):
            if all(end <= begun or start >= ended for begun, ended in reversed(taken)):
                taken.append((start, end))
                return number
        self._busy.append([(start, end)])
        return len(self._busy) - 1


def _bar(step: NinjaStep, slot: int, start: float, peaks: Mapping[str, float]) -> Bar:
    what = outputs.read(step.output)
    return Bar(
        name=what.file,
        target=what.target or "",
        kind=KINDS[what.kind],
        slot=slot,
        start=start,
        seconds=step.milliseconds / 1000,
        peak_mb=peaks.get(step.output),
    )


def trace(found: Timeline) -> dict[str, object]:
    """The same in the form that chrome://tracing and Perfetto open."""
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": slot, "name": "thread_name", "args": {"name": f"slot {slot + 1}"}}
        for slot in range(found.slots)
    ]
    events += [
        {
            "ph": "X",
            "pid": 1,
            "tid": bar.slot,
            "name": bar.name,
            "cat": bar.kind,
            "ts": round(bar.start * 1e6),
            "dur": round(bar.seconds * 1e6),
            "args": {"target": bar.target, **({"peak_mb": round(bar.peak_mb)} if bar.peak_mb else {})},
        }
        for bar in found.bars
    ]
    return {"traceEvents": without_secrets(events), "displayTimeUnit": "ms"}
