"""How long the rest of a compile takes: the weights of the files that are left, at the pace of those that are done.

The pace is learned per language, target and folder, each leaning on the next wider one until it has files of its own to
speak for it; what happened lately counts more, because a machine does not stay equally busy for hours. The rest is then
laid out on as many jobs as were seen running, so that one heavy file at the end is not spread over all of them.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

import msgspec

from rekindle.build.progress.weights import Weight

_KNOWN, _GUESSED = "known", "guessed"
_COMPILED = ("cxx", "c", "cuda")
_LEAN = 20.0
"""A folder's own pace outweighs that of its target once this many ordinary files are done."""
_FORGET = 450.0
_FORGET_FILES = 40
"""What was seen counts half after this many seconds, but not before this many files have followed."""
_WARY = 5.0
"""How much more a guess leans on what was timed."""
_WILD = 5.0
"""A file this many times slower or faster than expected was stuck or came from a cache: it counts no more than this."""
_WINDOW = 600.0
_OVERDUE = 0.25
"""A file that should be through by now takes this share of its age more."""


class TimeLeft(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds` left; `share` of the work that is done; `known`: how much of the rest was timed in an earlier build."""

    seconds: float
    share: float
    known: float


class Estimator:
    """`left` are the outputs to make, in Ninja's order. Times are seconds of one clock."""

    def __init__(self, weights: Mapping[str, Weight], *, jobs: int | None = None, begun: float = 0.0) -> None:
        self._left = dict(weights)
        self._total = sum(weight.seconds for weight in weights.values())
        self._done = 0.0
        self._jobs = jobs
        self._begun = begun
        self._mean = self._total / max(len(weights), 1) or 1.0
        self._pace: dict[tuple[str, ...], _Pace] = {}
        self._busy: deque[tuple[float, float]] = deque()
        self._twins: dict[tuple[str, str], list[str]] = defaultdict(list)
        for name, weight in weights.items():
            if weight.output.kind in _COMPILED:
                self._twins[weight.output.kind, weight.output.source].append(name)
        self._unlisted = (0.0, 0)
        """Seconds and number of outputs that nobody had announced."""

    def finished(self, name: str, seconds: float | None, at: float) -> None:
        """An output is made; `seconds` is None when nobody saw how long it took."""
        weight = self._left.pop(name, None)
        if seconds is not None and seconds > 0:
            self._busy.append((at - seconds, at))
            while self._busy and self._busy[0][1] < at - 2 * _WINDOW:
                self._busy.popleft()
        if weight is None:
            if seconds is not None:
                self._unlisted = (self._unlisted[0] + seconds, self._unlisted[1] + 1)
            return
        self._done += weight.seconds
        if seconds is not None and seconds > 0:
            self._learn(weight, seconds, at)
            self._tell_twins(weight, seconds)

    def _tell_twins(self, weight: Weight, seconds: float) -> None:
        """The same source for another target (a shared and a static library) takes what it took here."""
        for name in self._twins.get((weight.output.kind, weight.output.source), ()):
            if twin := self._left.get(name):
                seen = seconds / self._ratio_of(_places(twin)[1])
                self._left[name] = msgspec.structs.replace(twin, seconds=math.sqrt(seen * twin.seconds))

    def _learn(self, weight: Weight, seconds: float, at: float) -> None:
        """The widest pace first: each narrower one is held against it."""
        expected = weight.seconds
        for place in _places(weight):
            wider = self._ratio_of(place[:-1])
            bounded = min(max(seconds, expected * wider / _WILD), expected * wider * _WILD)
            self._pace.setdefault(place, _Pace(fades=weight.known)).add(bounded, expected, at)

    def remaining(
        self, now: float, running: Mapping[str, float] | None = None, *, unlisted: int = 0, fewer: int = 0
    ) -> TimeLeft:
        """`running`: age by output. Ninja may find that it has more to do than was listed (`unlisted`: of these only
        the number is known), or that some of it need not be done (`fewer`)."""
        running = running or {}
        slower = self._slower(running)
        times: list[float] = []
        ages: list[float] = []
        known = work = 0.0
        for name, weight in self._left.items():
            expected = weight.seconds * self._ratio(weight) * slower
            work += expected
            known += expected if weight.known else 0.0
            if name in running:
                age = running[name]
                ages.append(max(expected - age, age * _OVERDUE, 0.0))
            else:
                times.append(expected)
        if unlisted > 0:
            took, count = self._unlisted
            times += [took / count if count else self._mean * self._ratio_of(())] * unlisted
            work += sum(times[-unlisted:])
        if fewer > 0 and times:
            times = [seconds * max(0.0, 1 - fewer / len(times)) for seconds in times]
        jobs, busy = self._parallel(now, running)
        seconds = _laid_out(ages, times, jobs) * jobs / max(busy, 0.25)
        total = self._done + sum(weight.seconds for weight in self._left.values())
        return TimeLeft(
            seconds=seconds,
            share=self._done / total if total else 1.0,
            known=known / work if work else 1.0,
        )

    def _slower(self, running: Mapping[str, float]) -> float:
        """By how much the files that are overdue show that all is slower than the finished ones say."""
        overdue = [
            (age, expected)
            for name, age in running.items()
            if (weight := self._left.get(name)) and age > (expected := weight.seconds * self._ratio(weight))
        ]
        widest = self._pace.get(())
        seen = widest.seen if widest else 0.0
        late = sum(age - expected for age, expected in overdue)
        base = seen + sum(expected for _, expected in overdue)
        return 1.0 + late / base if base > 0 else 1.0

    def _ratio(self, weight: Weight) -> float:
        return self._ratio_of(_places(weight)[-1])

    def _ratio_of(self, place: tuple[str, ...]) -> float:
        """Seconds here per second of weight, from the widest place to this one.

        Files that were only guessed lean on those that were timed: the first of them (small libraries, most often) say
        little about the others.
        """
        ratio = 1.0
        guessed = bool(place) and place[0] == _GUESSED
        for length in range(len(place) + 1):
            found = (_KNOWN,) if guessed and length == 0 and (_KNOWN,) in self._pace else place[:length]
            pace = self._pace.get(found)
            if pace:
                lean = _LEAN * self._mean * (_WARY if guessed and length <= 2 else 1.0) if length else 0.0
                ratio = pace.against(ratio, lean)
        return ratio

    def _parallel(self, now: float, running: Mapping[str, float]) -> tuple[int, float]:
        """How many jobs there are, and how many were really busy on average of late."""
        since = max(self._begun, now - _WINDOW)
        span = now - since
        if span <= 0 or not self._busy:
            jobs = self._jobs or max(len(running), 1)
            return jobs, float(jobs)
        spans = [*self._busy, *((now - age, now) for age in running.values())]
        busy = sum(max(0.0, min(end, now) - max(start, since)) for start, end in spans) / span
        jobs = max(1, round(busy), len(running))
        jobs = min(jobs, self._jobs) if self._jobs else jobs
        return jobs, min(busy, jobs) if busy > 0 else jobs


class _Pace:
    """Seconds seen and seconds expected. What was timed before fades: its pace is the machine's, which changes.

    Files that were only guessed do not fade: what they tell is how heavy such files are, not how busy the machine is.
    """

    def __init__(self, *, fades: bool) -> None:
        self.fades = fades
        self.seen = self.expected = 0.0
        self.at: float | None = None

    def add(self, seen: float, expected: float, at: float) -> None:
        if self.fades and self.at is not None:
            fade = 0.5 ** min(max(at - self.at, 0.0) / _FORGET, 1 / _FORGET_FILES)
            self.seen *= fade
            self.expected *= fade
        self.seen += seen
        self.expected += expected
        self.at = at

    def against(self, ratio: float, lean: float) -> float:
        """The ratio here, leaning on that of the wider place."""
        return (self.seen + ratio * lean) / (self.expected + lean) if self.expected + lean > 0 else ratio


def _places(weight: Weight) -> tuple[tuple[str, ...], ...]:
    """From all files to the folder. What was timed before and what was guessed are kept apart."""
    output = weight.output
    path = (_KNOWN if weight.known else _GUESSED, output.kind, output.target, output.folder)
    return tuple(path[:length] for length in range(len(path) + 1))


def _laid_out(ages: Sequence[float], times: Sequence[float], jobs: int) -> float:
    """When the last of them ends if each job takes the next file as soon as it is free."""
    free = sorted([*ages, *[0.0] * max(0, jobs - len(ages))])
    heapq.heapify(free)
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free, default=0.0)
