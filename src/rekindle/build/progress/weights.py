"""How heavy each file of a build is, from builds that were timed before: this machine's own, and the shipped ones.

Builds differ in speed, so their times are brought to one scale by the files they have in common; only proportions
count, and what a file takes here is learned while the build runs. A file that nobody has timed is as heavy as its
neighbours in the same target or folder, larger sources more.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rekindle.build.progress import outputs
from rekindle.build.progress.outputs import Output

_COMMON = 5
"""Files that two builds must share before their speeds are compared."""
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
    """The first of the builds is the one nearest to this build; the others fill in and smooth."""

    def __init__(self, builds: Sequence[Times]) -> None:
        self._indexes = [_Index(build) for build in builds if build.seconds]

    def of(self, names: Iterable[str], sizes: Mapping[str, int] | None = None) -> dict[str, Weight]:
        """The weight of every output. `sizes`: bytes of the sources, by output, where they are known."""
        wanted = [outputs.read(name) for name in names]
        hits = [{each.name: found for each in wanted if (found := index.find(each))} for index in self._indexes]
        order = sorted((found for found in hits if found), key=len, reverse=True)
        merged = _merged(order)
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
