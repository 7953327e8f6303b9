"""The driver compiles all of a package's PTX once, on all cores, before any of it runs.

Without this each process of the operators has the driver compile the same files at the same time; and a container that
no operator reaches would never be tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core.findings import Finding, failed, passed, unverified
from rekindle.core.run import call
from rekindle.knowledge.gpu.capability import Target
from rekindle.wheels.verify.operators import lines_of

SCRIPT = Path(__file__).with_name("ask_driver.py")
# cuda.h: CUDA_ERROR_INVALID_PTX, _UNSUPPORTED_PTX_VERSION, _JIT_COMPILER_NOT_FOUND, _NO_BINARY_FOR_GPU
_REFUSED = {218: "invalid PTX", 222: "its PTX is too new", 221: "the compiler is missing", 209: "no code for this card"}


class PtxPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One container of GPU code in an installed library."""

    file: Path
    offset: int
    size: int


class Warmed(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver said of each container; `errors` are its numbers, by how often they came."""

    compiled: int
    errors: dict[int, int]
    left: int = 0
    seconds: float = 0.0
    problem: str | None = None


class WarmPlan(msgspec.Struct, frozen=True, kw_only=True):
    """With which Python, in which folder, in how many processes and for how long."""

    python: Path
    folder: Path
    processes: int = 8
    seconds: float = 1800.0


def warm(plan: WarmPlan, places: Sequence[PtxPlace], env: Mapping[str, str]) -> Warmed:
    """Each process takes its share of the containers."""
    listing = plan.folder / "containers.json"
    listing.write_text(json.dumps([[str(one.file), one.offset, one.size] for one in places]), encoding="utf-8")
    # A module that is loaded lazily is compiled when a kernel of it is first asked for.
    own = {**env, "CUDA_MODULE_LOADING": "EAGER"}

    def share(number: int) -> list[dict[str, Any]]:
        words = [str(number), str(plan.processes), str(plan.seconds)]
        said = call([plan.python, SCRIPT, listing, *words], env=own, timeout=plan.seconds + 300)
        found = lines_of(said.out)
        return found if said.ok or found else [{"problem": (said.err or said.out).strip()[-200:] or "it said nothing"}]

    with ThreadPoolExecutor(max_workers=plan.processes) as pool:
        return counted([line for lines in pool.map(share, range(plan.processes)) for line in lines])


def counted(lines: Sequence[Mapping[str, Any]]) -> Warmed:
    answers = [int(line["error"]) for line in lines if "error" in line]
    return Warmed(
        compiled=answers.count(0),
        errors={code: answers.count(code) for code in sorted(set(answers) - {0})},
        left=sum(int(line["left"]) for line in lines if "left" in line),
        seconds=round(sum(float(line["seconds"]) for line in lines if "seconds" in line), 1),
        problem=next((str(line["problem"]) for line in lines if "problem" in line), None),
    )


def line(warmed: Warmed, old: Target) -> Finding:
    """Every container must compile; what was not tried is said."""
    total = warmed.compiled + sum(warmed.errors.values()) + warmed.left
    if warmed.errors:
        code, number = next(iter(warmed.errors.items()))
        text = (
            f"the driver cannot compile {number} of {total} containers of {old}: {_REFUSED.get(code, f'error {code}')}"
        )
        return failed("ptx", text, why="their kernels cannot run here")
    if warmed.problem or warmed.left or not warmed.compiled:
        said = f"{warmed.compiled} of {total} containers of {old} were compiled by the driver"
        why = warmed.problem or "the time was up"
        return unverified("ptx", f"{said}: {why}")
    return passed("ptx", f"the driver compiled all {total} containers of {old}, {warmed.seconds:.0f} s of one core")
