"""How heavy each file of a build is, from builds that were timed before: this machine's own, and the shipped ones.

Builds differ in speed, so their times are brought to one scale by the files they have in common; only proportions
count, and what a file takes here is learned while the build runs. A file that nobody has timed is as heavy as its
neighbours in the same target or folder, larger sources more.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import defaultdict
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
    own: list[Times] = []
    paths = sorted(folder().glob("*.json"), key=lambda path: (path.stem != name, path.name))
    for path in paths:
        with contextlib.suppress(RekindleError, OSError):
            kept = codec.from_json(path.read_bytes(), Kept, name=f"`{path}`")
            own.append(Times(name=kept.name, seconds={key: ms / 1000 for key, ms in kept.milliseconds.items()}))
    shipped = [Times(name=each.id, seconds=each.seconds) for each in compile_times()]
    return own + shipped + [Times(name=f"sweep of {torch}", seconds=times) for torch, times in file_seconds().items()]


class LogTail:
    """Ninja's log of a running build: the seconds of what has been made since this was opened.

    Where the governor has a record of a compile, that counts: Ninja's time has the wait at the gate in it.
    """

    def __init__(self, path: Path, compiles: Path | None = None) -> None:
        self._path = path
        self._compiles = record.Tail(compiles) if compiles else None
        self._offset = 0
        self._before = self._new()
        self._found: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        for name, step in self._new().items():
            if self._before.get(name) != step:
                self._found[name] = step.milliseconds / 1000
        for each in self._compiles.read() if self._compiles else ():
            self._found[each.object] = each.seconds
        return self._found

    def _new(self) -> dict[str, ninja_log.NinjaStep]:
        """What was added since the last look; the whole file when Ninja has rewritten it shorter."""
        with contextlib.suppress(RekindleError, OSError), self._path.open("rb") as stream:
            size = stream.seek(0, 2)
            self._offset = self._offset if self._offset <= size else 0
            stream.seek(self._offset)
            whole = stream.read()
            whole = whole[: whole.rfind(b"\n") + 1]
            head = b"# ninja log v7\n" if self._offset else b""
            self._offset += len(whole)
            return {step.output: step for step in ninja_log.parse(head + whole)} if whole else {}
        return {}
