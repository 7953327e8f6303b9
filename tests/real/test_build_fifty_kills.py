"""kill -9 at fifty moments, spread over every step that makes something: the same artefacts after the next run.

REKINDLE_FIFTY=1 runs all of them (hours with nvcc on two cores), REKINDLE_FIFTY=cpp all of them without the CUDA files;
without it one moment of each step is tried. REKINDLE_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from support.artefacts import unverified
from support.cuda import machine
from support.killed_builds import BuildBench

if os.name == "nt":
    pytest.skip("UNVERIFIED: signals to a group are of POSIX", allow_module_level=True)

SEED = int(os.environ.get("REKINDLE_SEED", str(random.SystemRandom().randrange(10**6))))
PHASES = {"compile": 14, "link": 6, "package": 8, "repair": 8, "verify": 8, "shelve": 6}
KINDS = ("rekindle", "program", "group", "compilers")
MOMENTS = [(phase, number) for phase, count in PHASES.items() for number in range(count)]
MOMENTS = MOMENTS if os.environ.get("REKINDLE_FIFTY") else [(phase, 0) for phase in PHASES]


class Bench(BuildBench):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.took = {
            str(entry["step"]): float(str(entry["seconds"])) for entry in self.journal() if entry["event"] == "done"
        }

    def plan_text(self, text: str) -> str:
        if os.environ.get("REKINDLE_FIFTY") == "cpp":
            kept = [line for line in text.splitlines() if not line.startswith(("cuda", "arch_list"))]
            return "\n".join([*kept, "[options]", 'USE_CUDA = "OFF"', ""])
        kits = [kit for kit in machine().toolkits if kit.nvcc and kit.version and kit.targets]
        if not kits:
            unverified("there is no CUDA toolkit here")
        oldest = min(target.capability for target in kits[0].targets)
        return text.replace('"11.8"', f'"{kits[0].version}"').replace('"3.5"', f'"{oldest}"')

    def artefacts(self) -> dict[str, str]:
        """The repaired wheel member by member, and that the shelf holds the very same file."""
        wheel = next((self.work / "repaired").glob("*.whl"))
        shelved = next((self.shelf / "wheels").glob("*.whl"))
        assert shelved.read_bytes() == wheel.read_bytes(), "the shelf holds another wheel"
        found = {"shelf": ",".join(sorted(path.name for path in (self.shelf / "wheels").glob("*.whl")))}
        found |= self.members(wheel)
        report = json.loads(next((self.work / "repaired").glob("*.verify.json")).read_text(encoding="utf-8"))
        found["verify"] = str([(check["id"], check["state"]) for check in report["checks"]])
        return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("fifty"))


def kill(kind: str, run: subprocess.Popen[bytes], bench: Bench) -> None:
    children = psutil.Process(run.pid).children()
    if kind == "compilers":
        # The leaves: what ninja's gates run, not ninja nor Rekindle.
        for process in bench.processes():
            try:
                if not process.children() and process.pid not in {child.pid for child in children}:
                    process.kill()
            except psutil.Error:
                continue
        return
    if kind == "program" and children:
        for process in children:
            process.kill()
        return
    groups = [process.pid for process in children] if kind == "group" else []
    run.kill()
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


def reached(bench: Bench, run: subprocess.Popen[bytes], phase: str, since: int) -> bool:
    """Waits until that step has begun in this run; False when the build has ended before."""
    step = "compile" if phase == "link" else phase
    while run.poll() is None:
        entries = bench.journal()[since:]
        if any(entry["event"] == "begin" and entry.get("step") == step for entry in entries):
            return True
        time.sleep(0.005)
    return False


def wait_for_linker(bench: Bench, run: subprocess.Popen[bytes]) -> None:
    while run.poll() is None:
        for process in bench.processes():
            try:
                if process.name() in ("ld", "collect2", "ld.bfd", "nvlink", "fatbinary"):
                    return
            except psutil.Error:
                continue
        time.sleep(0.01)


@pytest.mark.parametrize(("phase", "number"), MOMENTS)
def test_the_same_artefacts_after_a_kill(bench: Bench, phase: str, number: int) -> None:
    chance = random.Random(f"{SEED} {phase} {number}")
    kind = KINDS[number % len(KINDS)]
    fresh = phase in ("compile", "link")
    if fresh:
        shutil.rmtree(bench.work)
    since = 0 if fresh else len(bench.journal())
    first = bench.start() if fresh else bench.start("--from", phase)
    if reached(bench, first, phase, since):
        if phase == "link":
            wait_for_linker(bench, first)
        length = bench.took["compile" if phase == "link" else phase]
        time.sleep(chance.uniform(0, 0.05 if phase == "link" else length))
        if first.poll() is None:
            kill(kind, first, bench)
    first.wait(timeout=300)
    told = f"{kind} in {phase}, moment {number}, REKINDLE_SEED={SEED}"
    assert bench.start().wait(timeout=900) == 0, f"{told}\n{bench.said()}"
    assert bench.artefacts() == bench.reference, told
    assert bench.processes() == [], f"{told}: something of the build is still running"
