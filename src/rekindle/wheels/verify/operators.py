"""PyTorch's own table of operators on a card and on the CPU, in several processes, and what came of it.

A process in which a kernel went wrong cannot go on; it is started again behind the operator that it was at.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import codec
from rekindle.core.run import Result, call

SCRIPT = Path(__file__).with_name("ask_operators.py")
MARK = "rekindle-verify: "
_RESTARTS = 50


class OperatorResult(msgspec.Struct, frozen=True, kw_only=True):
    """One operator with one type, forwards or backwards. `result` is passed, failed, skipped, crashed, not reached."""

    op: str
    dtype: str = ""
    part: str = ""
    result: str
    why: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.op, self.dtype, self.part)


class Operators(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what was compared; `results` has all of it, for those who want to count again."""

    table: int
    passed: int
    failed: int
    skipped: dict[str, int]
    crashed: int
    not_reached: int
    results: tuple[OperatorResult, ...]
    problem: str | None = None

    @property
    def whole(self) -> bool:
        """Was every operator of the table tried, and was there one?"""
        return self.problem is None and self.table > 0 and not self.not_reached


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """How the table is gone through: with which Python and environment, in how many processes, for how long."""

    python: Path
    env: Mapping[str, str]
    processes: int = 8
    seconds: float = 1800.0
    only: Sequence[str] = ()
    device: str = "cuda"


def compare(trip: Trip) -> Operators:
    with ThreadPoolExecutor(max_workers=trip.processes) as pool:
        shares = list(pool.map(lambda number: _share(trip, number), range(trip.processes)))
    return counted([line for lines in shares for line in lines])


def counted(lines: Sequence[Mapping[str, Any]]) -> Operators:
    """What the lines of all processes amount to."""
    results = tuple(
        sorted(
            (codec.from_builtins(line, OperatorResult) for line in lines if "result" in line and "op" in line),
            key=lambda one: one.key,
        )
    )
    by = Counter(one.result for one in results)
    problems = [str(line["problem"]) for line in lines if "problem" in line]
    return Operators(
        table=max((int(line["table"]) for line in lines if "table" in line), default=0),
        passed=by["passed"],
        failed=by["failed"],
        skipped=dict(Counter(_reason(one.why) for one in results if one.result == "skipped").most_common()),
        crashed=by["crashed"],
        not_reached=by["not reached"],
        results=results,
        problem=problems[0] if problems else None,
    )


def _share(trip: Trip, number: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    first, left = 0, trip.seconds
    for _ in range(_RESTARTS):
        words = [trip.device, str(number), str(trip.processes), str(first), str(left), *trip.only]
        # What a hanging kernel costs beyond the limit that the process keeps itself.
        said = call([trip.python, SCRIPT, *words], env=trip.env, timeout=left + 120)
        new = lines_of(said.out)
        lines += new
        last = next((line for line in reversed(new) if "begin" in line), None)
        if any("end" in line or "problem" in line or line.get("result") == "not reached" for line in new):
            return lines
        if last is None:
            return [*lines, {"problem": _end(said)}]
        poisoned = next((str(line["why"]) for line in new if "poisoned" in line), None)
        lines.append({"op": last["op"], "result": "crashed", "why": poisoned or _end(said)})
        first = int(last["begin"]) + 1
        left -= said.seconds
        if left <= 0:
            return [*lines, {"op": f"share {number} from {first}", "result": "not reached", "why": "no time was left"}]
    return [*lines, {"problem": f"the process ended {_RESTARTS} times"}]


def lines_of(text: str) -> list[dict[str, Any]]:
    """What a script of ours said between whatever torch printed."""
    found = []
    for line in text.splitlines():
        if line.startswith(MARK):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line.removeprefix(MARK)))
    return found


def _end(said: Result) -> str:
    if said.timed_out:
        return "timed out"
    tail = (said.err or said.out).strip().splitlines()
    return f"exited with code {said.code}: {tail[-1][:200] if tail else 'it said nothing'}"


def _reason(why: str) -> str:
    """Reasons are counted by their kind; what an exception said goes on in `results`."""
    return why.partition(": ")[0]
