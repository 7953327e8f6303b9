"""How far off the time left is: `python benchmarks/eta.py [--logs DIR] [--trace NAME]`.

On recorded logs of real builds, with weights from other builds only: each build is played back from its beginning, and
at every percent of its work from 10 % on, the time that was said to be left is held against the time that was left.
Beside it the same for counting steps, and for a first-ever build, for which there are no weights.

The records are `benchmarks/data/eta/*.csv.xz`: output, start and end in milliseconds and, where it was measured, the
CPU time of the compile. A clock on the wall measures the machine's other work too, which nobody can foretell; where the
CPU time is known, the build is also played back `steady`: every file takes its CPU time, in Ninja's order, on two jobs.

    python benchmarks/eta.py --record NAME .ninja_log [CPU.tsv]    makes a record
    python benchmarks/eta.py --logs DIR                            takes the `*.ninja_log` of a folder as builds too
"""

from __future__ import annotations

import argparse
import csv
import io
import lzma
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

from rekindle.build.progress import outputs  # noqa: E402
from rekindle.build.progress.weights import (  # noqa: E402
    Estimator,
    Times,
    Weights,
)

DATA = ROOT / "benchmarks" / "data" / "eta"
LEAST = 500
JOBS = 2
ALLOWED = 0.12
FIFTH, NEAR = 0.2, 0.15


class Piece(NamedTuple):
    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Build(NamedTuple):
    name: str
    kind: str
    pieces: tuple[Piece, ...]

    @property
    def base(self) -> str:
        return self.name.removesuffix("-begun")

    @property
    def times(self) -> Times:
        return Times(name=self.name, seconds={outputs.read(each.name).key: each.seconds for each in self.pieces})


class Errors(NamedTuple):
    """Shares of the time that was left, one per percent of the work; `ends`: of the told end, as shares of the whole
    time, from a fifth of the work on."""

    weights: list[float]
    counting: list[float]
    first: list[float]
    ends: list[float]
    known: float


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--record", nargs="+", metavar="NAME LOG [CPU]")
    arguments.add_argument("--logs", type=Path, help="a folder with further .ninja_log files")
    arguments.add_argument("--trace", help="print the course of one build")
    asked = arguments.parse_args()
    if asked.record:
        return record(*asked.record)
    builds = [build for path in sorted(DATA.glob("*.csv.xz")) for build in read(path)]
    builds += [build for path in sorted(asked.logs.rglob("*ninja_log*")) for build in runs(path)] if asked.logs else []
    pools: dict[str, list[Errors]] = {}
    row("build", "pieces", "timed before", "weights", "90 %", "counting", "first ever")
    for build in builds:
        others = weights_for(build, builds)
        if asked.trace and asked.trace != build.name:
            continue
        errors = measured(build, others, trace=bool(asked.trace))
        pools.setdefault(build.kind, []).append(errors)
        row(
            f"{build.name} ({build.kind})",
            str(len(build.pieces)),
            f"{errors.known:.0%}",
            middle(errors.weights),
            f"{high(errors.weights):.1%}",
            middle(errors.counting),
            middle(errors.first),
        )
    return summary(pools)


def weights_for(build: Build, builds: list[Build]) -> list[Times]:
    """Those of every other build: its CPU times where they are known. Two runs of one build (`-begun`) are one."""
    steady = {each.name for each in builds if each.kind == "steady"}
    times: dict[str, dict[str, float]] = {}
    for other in builds:
        if other.base != build.base and (other.kind == "steady" or other.name not in steady):
            times.setdefault(other.base, {}).update(other.times.seconds)
    return [Times(name=name, seconds=seconds) for name, seconds in times.items()]


def measured(build: Build, others: list[Times], *, trace: bool = False) -> Errors:
    # In the order in which Ninja begins them, which is what its dry run lists before a build.
    names = [each.name for each in sorted(build.pieces, key=lambda each: each.start)]
    weighed = Weights(others).of(names)
    total = sum(each.seconds for each in build.pieces)
    known = sum(each.seconds for each in build.pieces if weighed[each.name].known) / total
    begun = min(each.start for each in build.pieces)
    ends: list[float] = []
    with_weights, without = Estimator(weighed, begun=begun), Estimator(Weights([]).of(names), begun=begun)
    return Errors(
        weights=played(
            build, with_weights, lambda now, running, _: with_weights.remaining(now, running).seconds, trace, ends
        ),
        first=played(build, without, lambda now, running, _: without.remaining(now, running).seconds),
        counting=played(build, None, lambda now, running, done: (now - begun) * (len(names) - done) / done),
        ends=ends,
        known=known,
    )


def played(
    build: Build,
    estimator: Estimator | None,
    said: Callable[[float, dict[str, float], int], float],
    trace: bool = False,
    ends: list[float] | None = None,
) -> list[float]:
    order = sorted(build.pieces, key=lambda each: each.end)
    total, end = sum(each.seconds for each in order), order[-1].end
    errors, done, mark = [], 0.0, 0.10
    for number, piece in enumerate(order, 1):
        if estimator:
            estimator.finished(piece.name, piece.seconds, piece.end)
        done += piece.seconds
        left = end - piece.end
        while done / total >= mark and mark < 0.995:
            if left > 0:
                running = {each.name: piece.end - each.start for each in order[number:] if each.start < piece.end}
                answer = said(piece.end, running, number)
                errors.append(abs(answer - left) / left)
                if ends is not None and mark >= FIFTH:
                    ends.append(abs(answer - left) / (end - min(each.start for each in order)))
                if trace:
                    print(f"  {mark:4.0%}  left {left:8.1f} s  said {answer:8.1f} s  {(answer - left) / left:+5.0%}")
            mark += 0.01
    return errors


def summary(pools: dict[str, list[Errors]]) -> int:
    met = True
    for kind, errors in pools.items():
        weights = statistics.median(error for each in errors for error in each.weights)
        counting = statistics.median(error for each in errors for error in each.counting)
        first = statistics.median(error for each in errors for error in each.first)
        print()
        print(f"{kind}: {len(errors)} builds, median error of the time left")
        print(f"  with weights     {weights:6.1%}   asked for: at most {ALLOWED:.0%}, {_word(weights <= ALLOWED)}")
        print(f"  counting steps   {counting:6.1%}   at least twice that: {_word(weights * 2 <= counting)}")
        print(f"  first ever       {first:6.1%}")
        ends = [error for each in errors for error in each.ends]
        near = sum(error <= NEAR for error in ends) / len(ends)
        print(f"  the end, told from a fifth on: {statistics.median(ends):.1%} of the whole time off, within", end=" ")
        print(f"{NEAR:.0%} of it at {near:.0%} of the moments")
        met = met and (kind != "steady" or (weights <= ALLOWED and weights * 2 <= counting))
    return 0 if met else 1


def read(path: Path) -> list[Build]:
    """One record: as the clock on the wall saw it, and steady where the CPU time is known."""
    rows = list(csv.reader(io.StringIO(lzma.decompress(path.read_bytes()).decode("utf-8"))))
    name = path.name.removesuffix(".csv.xz")
    pieces = tuple(Piece(each[0], int(each[1]) / 1000, int(each[2]) / 1000) for each in rows)
    builds = [Build(name, "wall", pieces)]
    if any(len(each) > 3 for each in rows):
        took = {each[0]: int(each[3]) / 1000 for each in rows if len(each) > 3}
        builds.append(Build(name, "steady", laid_out(pieces, took)))
    return builds


def laid_out(pieces: Iterable[Piece], took: dict[str, float]) -> tuple[Piece, ...]:
    free = [0.0] * JOBS
    laid = []
    for piece in sorted(pieces, key=lambda each: each.start):
        if piece.name not in took:
            continue
        at = min(free)
        free[free.index(at)] = at + max(took[piece.name], 0.001)
        laid.append(Piece(piece.name, at, at + max(took[piece.name], 0.001)))
    return tuple(laid)


def runs(path: Path) -> list[Build]:
    """The largest single run in one of Ninja's logs: entries whose wall clock and run clock differ by the same."""
    entries: dict[str, tuple[int, int, float, str]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        fields = line.split("\t")
        if len(fields) < 5 or not (fields[0].isdigit() and fields[1].isdigit()) or int(fields[1]) <= int(fields[0]):
            continue
        clock = float(fields[2])
        # Nanoseconds, Windows' tenths of microseconds, or seconds, as the version and the system have it.
        clock = clock / 1e6 if clock > 1e17 else clock / 1e4 if clock > 1e13 else clock * 1000
        entries[fields[3]] = (int(fields[0]), int(fields[1]), clock, fields[4])

    def work(group: Iterable[str]) -> int:
        return sum(end - start for start, end, _ in {(*entries[name][:2], entries[name][3]) for name in group})

    chosen: list[str] = []
    # Ninja 1.12 and later write when a command began, older ones when its output was written.
    for at in (0, 1):
        groups: list[list[str]] = []
        last = None
        for offset, name in sorted((values[2] - values[at], name) for name, values in entries.items() if values[2]):
            if last is None or offset - last > 4000:
                groups.append([])
            groups[-1].append(name)
            last = offset
        chosen = max([chosen, *groups], key=work)
    commands: dict[tuple[int, int, str], str] = {}
    for name in chosen:
        start, end, _, digest = entries[name]
        commands.setdefault((start, end, digest), name)
    pieces = tuple(Piece(name, start / 1000, end / 1000) for (start, end, _), name in commands.items())
    return [Build(path.name.removesuffix(".ninja_log"), "elsewhere", pieces)] if len(pieces) >= 20 else []


def record(name: str, log: str, cpu: str | None = None) -> int:
    """A record of one build, without its folder: outputs, times, and the CPU time where a launcher measured it."""
    (build,) = csv_of(Path(log)) if log.endswith(".csv") else runs(Path(log))
    took: dict[str, float] = {}
    for line in Path(cpu).read_text(encoding="utf-8").splitlines() if cpu else ():
        output, seconds, _ = line.split("\t")
        took[output] = took.get(output, 0.0) + float(seconds)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for each in sorted(build.pieces, key=lambda piece: piece.end):
        if Path(each.name).is_absolute() or (outputs.read(each.name).kind == "other" and each.seconds * 1000 < LEAST):
            continue
        more = [round(took[each.name] * 1000)] if each.name in took else []
        writer.writerow([placeless(each.name), round(each.start * 1000), round(each.end * 1000), *more])
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / f"{name}.csv.xz").write_bytes(lzma.compress(stream.getvalue().encode("utf-8"), preset=9))
    print(f"{name}: {len(build.pieces)} pieces")
    return 0


def placeless(name: str) -> str:
    """CMake puts the whole path of a source outside its folder into the object's name: only its end is kept."""
    head, found, inner = name.partition(".dir/")
    source = inner.rpartition(".")[0]
    return f"{head}{found}{'/'.join(inner.split('/')[-3:])}" if found and Path("/", source).is_file() else name


def csv_of(path: Path) -> list[Build]:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    pieces = [Piece(each["object"], int(each["start_ms"]) / 1000, int(each["end_ms"]) / 1000) for each in rows]
    return [Build(path.stem, "wall", tuple(pieces))]


def middle(errors: list[float]) -> str:
    return f"{statistics.median(errors):.1%}"


def high(errors: list[float]) -> float:
    return sorted(errors)[int(len(errors) * 0.9)]


def row(*cells: str) -> None:
    first, *rest = cells
    print(f"{first[:44]:<45}" + "".join(f"{cell:>13}" for cell in rest))


def _word(met: bool) -> str:
    return "met" if met else "NOT met"


if __name__ == "__main__":
    sys.exit(main())
