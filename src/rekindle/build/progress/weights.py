"""How heavy each file of a build is, and how long the rest takes at the pace of those that are done.

Builds that were timed before, this machine's own and the shipped ones, differ in speed: their times are brought to one
scale by the files they have in common. A file that nobody has timed is as heavy as its neighbours in the same target or
folder, larger sources more.

The pace is learned per language, target and folder, each leaning on the next wider one until it has files of its own to
speak for it; what happened lately counts more, because a machine does not stay equally busy for hours. The rest is then
laid out on as many jobs as were seen running, so that one heavy file at the end is not spread over all of them.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.build.governor import record
from rekindle.build.progress import outputs
from rekindle.build.progress.outputs import Output
from rekindle.core import codec, files
from rekindle.core.errors import RekindleError
from rekindle.core.paths import cache_folder
from rekindle.formats import ninja_log
from rekindle.knowledge.builds.costs import compile_times
from rekindle.knowledge.builds.sweeps import file_seconds

_COMMON = 5
"""Files that two builds must share before their speeds are compared."""
_SAME = 0.9
"""The share of the files that the nearest build must have timed to be this build before; then it counts alone."""
_DEFAULTS = {"cxx": 6.0, "c": 1.0, "cuda": 22.0, "link": 1.0, "other": 0.5}
"""Seconds where nothing is known. A CUDA file of PyTorch for one architecture takes 3.6 times what a C++ file does."""
_SIZE_POWER = 0.35
"""Headers outweigh the source: ten times the text takes about twice the time."""


class Weight(msgspec.Struct, frozen=True, kw_only=True):
    """`known`: this very file was timed before; otherwise it was judged by its neighbours."""

    output: Output
    seconds: float
    known: bool


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """One build's: seconds by `Output.key`."""

    name: str
    seconds: dict[str, float]


class Weights:
    """The first of the builds is the one nearest to this build; the others fill in, and smooth where it is another."""

    def __init__(self, builds: Sequence[Times]) -> None:
        self._indexes = [_Index(build) for build in builds if build.seconds]

    def of(self, names: Iterable[str], sizes: Mapping[str, int] | None = None) -> dict[str, Weight]:
        """The weight of every output. `sizes`: bytes of the sources, by output, where they are known."""
        wanted = [outputs.read(name) for name in names]
        hits = [{each.name: found for each in wanted if (found := index.find(each))} for index in self._indexes]
        order = sorted((found for found in hits if found), key=len, reverse=True)
        nearest = hits[0] if hits and len(hits[0]) >= _SAME * len(wanted) else {}
        merged = _merged(order) if not nearest else _merged([nearest, *order]) | nearest
        neighbours = _Neighbours([(each, merged[each.name]) for each in wanted if each.name in merged], sizes or {})
        return {
            each.name: Weight(output=each, seconds=merged[each.name], known=True)
            if each.name in merged
            else Weight(output=each, seconds=neighbours.guess(each), known=False)
            for each in wanted
        }


class _Index:
    """One build's times, found by key, by source, and by the end of the path."""

    def __init__(self, build: Times) -> None:
        self._exact = build.seconds
        self._by_file: dict[str, list[tuple[list[str], str, float]]] = defaultdict(list)
        for key, seconds in build.seconds.items():
            target, _, source = key.rpartition(":")
            parts = source.split("/")
            self._by_file[parts[-1]].append((parts[::-1], target, seconds))

    def find(self, output: Output) -> float | None:
        exact = self._exact.get(output.key)
        if exact is not None:
            return max(exact, 0.001)
        if output.kind in ("link", "other"):
            return None
        parts = output.source.split("/")[::-1]
        scored = [
            ((_alike(parts, other), target == output.target), seconds)
            for other, target, seconds in self._by_file.get(parts[0], ())
        ]
        if not scored:
            return None
        best = max(score for score, _ in scored)
        # `utils.cpp` alone says nothing: the folder has to agree too, or the target.
        if best[0] < 2 and not best[1]:
            return None
        return max(statistics.median(seconds for score, seconds in scored if score == best), 0.001)


class _Neighbours:
    """The mean of the files that were timed: of the same target and folder, else of either, else of the language."""

    def __init__(self, timed: Sequence[tuple[Output, float]], sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._size = statistics.median(sizes.values()) if sizes else 1
        self._groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
        # What is usual is said in seconds of some machine; here it counts in those of the builds that were timed.
        usual = sum(_DEFAULTS[output.kind] for output, _ in timed)
        self._scale = sum(seconds for _, seconds in timed) / usual if usual else 1.0
        for output, seconds in timed:
            for group in _groups(output):
                self._groups[group].append(seconds / self._factor(output))

    def guess(self, output: Output) -> float:
        for group in _groups(output):
            found = self._groups.get(group, ())
            if len(found) >= _COMMON:
                return statistics.fmean(found) * self._factor(output)
        return _DEFAULTS[output.kind] * self._scale * self._factor(output)

    def _factor(self, output: Output) -> float:
        size = self._sizes.get(output.name)
        return (max(size, 200) / max(self._size, 200)) ** _SIZE_POWER if size else 1.0


def _groups(output: Output) -> tuple[tuple[str, ...], ...]:
    kind = output.kind
    return ((kind, output.target, output.folder), (kind, "", output.folder), (kind, output.target), (kind,))


def _merged(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One scale for all: the geometric mean of what the builds say of a file."""
    logs: dict[str, list[float]] = {}
    for times in found:
        shared = [statistics.fmean(logs[name]) - math.log(seconds) for name, seconds in times.items() if name in logs]
        if len(shared) >= _COMMON:
            shift = statistics.median(shared)
        elif logs and len(times) >= _COMMON:
            # Nothing to compare: an ordinary file of the one weighs what an ordinary file of the other does.
            usual = statistics.median(statistics.fmean(values) for values in logs.values())
            shift = usual - statistics.median(math.log(seconds) for seconds in times.values())
        else:
            shift = 0.0
        for name, seconds in times.items():
            logs.setdefault(name, []).append(math.log(seconds) + shift)
    return {name: math.exp(statistics.fmean(values)) for name, values in logs.items()}


def _alike(left: Sequence[str], right: Sequence[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


_KEPT = 12
_LEAST = 500
"""Milliseconds that something other than a compile or a link must take to be worth remembering."""
_FEWEST = 5
"""A build of fewer files than this teaches nothing."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of every output, by `Output.key`."""

    schema: str = "rekindle.times/1"
    name: str
    milliseconds: dict[str, int]


def folder() -> Path:
    return cache_folder() / "times"


def read_log(log: Path) -> dict[str, float]:
    """Seconds of every command that Ninja's log names, by the `Output.key` of its first output.

    A generator that writes a thousand headers is one piece of work; what takes no time is none.
    """
    found: dict[str, float] = {}
    seen: set[tuple[int, int]] = set()
    for step in ninja_log.read(log):
        output = outputs.read(step.output)
        if output.kind == "other":
            if step.milliseconds < _LEAST or (step.start, step.end) in seen:
                continue
            seen.add((step.start, step.end))
        if step.milliseconds > 0:
            found[output.key] = step.milliseconds / 1000
    return found


def keep(log: Path, name: str, compiles: Path | None = None) -> None:
    """What this build took, beside what it took before. An estimate is never worth a failed build.

    Ninja counts the time that a compile waits at the gate; the governor's record of `compiles` does not.
    """
    with contextlib.suppress(RekindleError, OSError):
        seconds = read_log(log)
        for each in record.read(compiles) if compiles else ():
            key = outputs.read(each.object).key
            if key in seconds and not each.code:
                seconds[key] = each.seconds
        if len(seconds) < _FEWEST:
            return
        path = folder() / f"{name}.json"
        kept = Kept(name=name, milliseconds={key: round(value * 1000) for key, value in seconds.items()})
        files.write_text(path, codec.to_json(kept, indent=0))
        every = sorted(folder().glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in every[_KEPT:]:
            old.unlink(missing_ok=True)


def builds(name: str) -> list[Times]:
    """Every build that was timed: the one of this name, this machine's others, the shipped ones, the sweeps."""
    paths = sorted(folder().glob("*.json"), key=lambda path: (path.stem != name, path.name))
    own = [
        Times(name=kept.name, seconds={key: ms / 1000 for key, ms in kept.milliseconds.items()})
        for path in paths
        if (kept := codec.kept(path, Kept))
    ]
    shipped = [Times(name=each.id, seconds=each.seconds) for each in compile_times()]
    return own + shipped + [Times(name=f"sweep of {torch}", seconds=times) for torch, times in file_seconds().items()]


class LogTail:
    """Ninja's log of a running build: the seconds of what has been made since this was opened.

    Where the governor has a record of a compile, that counts: Ninja's time has the wait at the gate in it.
    """

    def __init__(self, path: Path, compiles: Path | None = None) -> None:
        self._log = record.Tail(path)
        self._compiles = record.Tail(compiles) if compiles else None
        if self._compiles:
            self._compiles.new()  # what was there before is not told
        self._before = self._new()
        self._found: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        for name, step in self._new().items():
            if self._before.get(name) != step:
                self._found[name] = step.milliseconds / 1000
        for each in self._compiles.compiles() if self._compiles else ():
            self._found[each.object] = each.seconds
        return self._found

    def _new(self) -> dict[str, ninja_log.NinjaStep]:
        whole = self._log.new()
        head = b"# ninja log v7\n" if self._log.offset > len(whole) else b""
        with contextlib.suppress(RekindleError):
            return {step.output: step for step in ninja_log.parse(head + whole)} if whole else {}
        return {}


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
