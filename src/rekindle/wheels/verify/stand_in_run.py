"""The runs of `verify --stand-in`: plain, without the driver's compiler, and behind the mask of the old card.

The driver compiles all of a package's PTX once, on all cores, before any of it runs: each process would have it compile
the same files at the same time, and a container that no operator reaches would never be tried.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core.findings import Finding, failed, passed, unverified
from rekindle.core.paths import system
from rekindle.core.programs import which
from rekindle.core.python import ask
from rekindle.core.run import Result, call
from rekindle.knowledge.gpu.capabilities import LaunchLimits
from rekindle.model.card import Target
from rekindle.wheels.verify.trial import Operators, Trip, clean_environment, driver_cache, lines_of
from rekindle.wheels.verify.trial import compare_operators as compare

MASK_SOURCE = Path(__file__).with_name("mask.c")
# Each needs a kernel of torch's own; none is a copy, a view or a call of a CUDA library.
ELEMENTARY = ("add", "mul", "sin", "cumsum", "where", "index_select", "nn.functional.relu", "softmax")
# Any of these would change which code the driver takes.
_DRIVER_VARIABLES = ("CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT", "CUDA_CACHE_DISABLE", "CUDA_FORCE_JIT")
# What the driver says of machine code for another card.
NO_IMAGE = "no kernel image"
_NO_CODE = (NO_IMAGE, "PTX JIT", "invalid device function", "named symbol not found", "error 209", "error 222")


class WarmPlan(msgspec.Struct, frozen=True, kw_only=True):
    """With which Python, in which folder, in how many processes and for how long."""

    python: Path
    folder: Path
    processes: int = 8
    seconds: float = 1800.0


class StandInSetup(WarmPlan, frozen=True, kw_only=True):
    """`torch`: the operators are compared. `trial` is a program of the user's that must end with 0."""

    index: int = 0
    torch: bool = True
    trial: Path | None = None
    jit_cache: Path | None = None
    only: tuple[str, ...] = ()


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One of the runs. `trial` is None when there was none; `log` is what the mask wrote down."""

    operators: Operators | None = None
    trial: bool | None = None
    said: str = ""
    log: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.trial is False or (
            self.operators is not None and bool(self.operators.failed + self.operators.crashed)
        )


def variables(setup: StandInSetup, **more: str) -> dict[str, str]:
    """The environment of a run: the driver's own choice of code, a cache of compiled PTX of its own, no TF32."""
    kept = {name: value for name, value in clean_environment().items() if name not in _DRIVER_VARIABLES}
    cache = setup.jit_cache or setup.folder / "jit-cache"
    return {
        **kept,
        **driver_cache(cache),
        "CUDA_MODULE_LOADING": "LAZY",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": str(setup.index),
        "NVIDIA_TF32_OVERRIDE": "0",
        # The processes share the cores already.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONUTF8": "1",
        **more,
    }


def run(setup: StandInSetup, env: Mapping[str, str], *, only: tuple[str, ...] = ()) -> RunResult:
    """The operators and the user's trial in this environment."""
    operators = None
    if setup.torch:
        trip = Trip(
            python=setup.python,
            env=env,
            processes=1 if only else setup.processes,
            seconds=setup.seconds,
            only=only or setup.only,
        )
        operators = compare(trip)
    if setup.trial is None:
        return RunResult(operators=operators)
    said = call([setup.python, setup.trial], env=env, timeout=setup.seconds + 60)
    return RunResult(operators=operators, trial=said.ok, said=_tail(said))


def without_jit(setup: StandInSetup) -> tuple[Finding, RunResult]:
    """Control: where the driver may not compile PTX, nothing may run. What does run was native code."""
    folder = setup.folder / "no-jit"
    folder.mkdir(exist_ok=True)
    env = variables(setup, CUDA_DISABLE_PTX_JIT="1", CUDA_CACHE_PATH=str(folder))
    ran = run(setup, env, only=ELEMENTARY if setup.torch else ())
    right = [one for one in ran.operators.results if one.result == "passed"] if ran.operators else []
    if right or ran.trial:
        what = ", ".join(sorted({one.op for one in right})) or "the trial"
        text = f"with the driver's compiler switched off these still ran: {what}"
        return failed("control-jit", text, why="what runs without it is native code: nothing was shown of the PTX"), ran
    said = " ".join([ran.said, *(one.why for one in (ran.operators.results if ran.operators else ()))])
    if not any(word in said for word in _NO_CODE):
        text = f"with the driver's compiler switched off it failed, but not for lack of code: {said.strip()[:200]}"
        return unverified("control-jit", text), ran
    number = ran.operators.failed + ran.operators.crashed if ran.operators else 0
    what = f"all {number} operators tried fail" if number else "the trial fails"
    return passed("control-jit", f"with the driver's compiler switched off {what}"), ran


def masked(setup: StandInSetup, limits: LaunchLimits) -> tuple[RunResult | None, str]:
    """The same behind the mask; None and the reason where there can be none."""
    if system() != "linux":
        return None, "the mask of the old card exists for Linux only"
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := which(name))), None)
    if compiler is None:
        return None, "no C compiler here to build the mask of the old card with"
    library, log = setup.folder / "mask.so", setup.folder / "mask.log"
    made = call([compiler, "-O1", "-shared", "-fPIC", "-o", library, MASK_SOURCE, "-ldl"], timeout=120)
    if not made.ok:
        return None, f"the mask of the old card does not compile: {_tail(made)}"
    values = {
        "major": limits.capability.major,
        "minor": limits.capability.minor,
        "multiprocessors": limits.multiprocessors,
        "shared_per_block": limits.shared_per_block,
        "shared_per_multiprocessor": limits.shared_per_multiprocessor,
        "registers_per_block": limits.registers_per_block,
        "registers_per_multiprocessor": limits.registers_per_multiprocessor,
    }
    env = variables(
        setup,
        LD_PRELOAD=str(library),
        REKINDLE_MASK=" ".join(f"{name}={value}" for name, value in values.items()),
        REKINDLE_MASK_LOG=str(log),
    )
    ran = run(setup, env)
    lines = tuple(log.read_text(encoding="utf-8", errors="replace").splitlines()) if log.exists() else ()
    return msgspec.structs.replace(ran, log=lines), ""


def with_old_driver(setup: StandInSetup, library: Path) -> Finding:
    """Line 6: imported with the old card's last driver in front. That finds no card here; it must not crash."""
    folder = setup.folder / "old-driver"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(library, folder / "libcuda.so.1")
    env = variables(setup, LD_LIBRARY_PATH=f"{folder}{os.pathsep}{os.environ.get('LD_LIBRARY_PATH', '')}")
    program = "import torch; print('answered', torch.cuda.is_available())"
    said = ask(setup.python, "-c", program, env=env, timeout=300)
    if said.ok and "answered" in said.out:
        return passed("old-driver-import", "`import torch` works with the old driver's library")
    return failed("old-driver-import", f"`import torch` with the old driver's library: {_tail(said)}")


def _tail(said: Result) -> str:
    if said.timed_out:
        return "timed out"
    lines = [line for line in (said.err + "\n" + said.out).splitlines() if line.strip()]
    return " | ".join(lines[-3:])[:400] if lines else f"exited with code {said.code}"


_WARM_SCRIPT = Path(__file__).with_name("ask_driver.py")
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


def warm(plan: WarmPlan, places: Sequence[PtxPlace], env: Mapping[str, str]) -> Warmed:
    """Each process takes its share of the containers."""
    listing = plan.folder / "containers.json"
    listing.write_text(json.dumps([[str(one.file), one.offset, one.size] for one in places]), encoding="utf-8")
    # A module that is loaded lazily is compiled when a kernel of it is first asked for.
    own = {**env, "CUDA_MODULE_LOADING": "EAGER"}

    def share(number: int) -> list[dict[str, Any]]:
        words = [str(number), str(plan.processes), str(plan.seconds)]
        said = call([plan.python, _WARM_SCRIPT, listing, *words], env=own, timeout=plan.seconds + 300)
        found = lines_of(said.out)
        return found if said.ok or found else [{"problem": (said.err or said.out).strip()[-200:] or "it said nothing"}]

    with ThreadPoolExecutor(max_workers=plan.processes) as pool:
        return warm_counts([line for lines in pool.map(share, range(plan.processes)) for line in lines])


def warm_counts(lines: Sequence[Mapping[str, Any]]) -> Warmed:
    answers = [int(line["error"]) for line in lines if "error" in line]
    return Warmed(
        compiled=answers.count(0),
        errors={code: answers.count(code) for code in sorted(set(answers) - {0})},
        left=sum(int(line["left"]) for line in lines if "left" in line),
        seconds=round(sum(float(line["seconds"]) for line in lines if "seconds" in line), 1),
        problem=next((str(line["problem"]) for line in lines if "problem" in line), None),
    )


def warm_line(warmed: Warmed, old: Target) -> Finding:
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
