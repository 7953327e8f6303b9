"""A real build killed at random moments, in three ways, and resumed: the same artefacts, nothing finished done twice.

REKINDLE_KILLS says how many kills (3 unless told); REKINDLE_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import rekindle
from support.cuda import kepler_toolkit
from support.killed_builds import BuildBench

if os.name == "nt":
    pytest.skip("UNVERIFIED: signals to a group are of POSIX; Windows has its own test", allow_module_level=True)

KILLS = int(os.environ.get("REKINDLE_KILLS", "3"))
SEED = int(os.environ.get("REKINDLE_SEED", str(random.SystemRandom().randrange(10**6))))
KINDS = ("rekindle", "ninja", "group")


class Bench(BuildBench):
    def plan_text(self, text: str) -> str:
        return text.replace('"11.8"', f'"{kepler_toolkit().version}"')


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("kills"))


def kill(kind: str, run: subprocess.Popen[bytes], bench: Bench) -> None:
    if kind == "ninja":
        # The program that Rekindle started: ninja while it compiles, cmake while it configures.
        for process in psutil.Process(run.pid).children():
            process.kill()
        return
    groups = [process.pid for process in psutil.Process(run.pid).children()] if kind == "group" else []
    run.kill()
    for group in groups:
        with_group = [process for process in bench.processes() if os.getpgid(process.pid) == group]
        if with_group:
            os.killpg(group, signal.SIGKILL)


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_build_resumes_to_the_same_artefacts(bench: Bench, number: int) -> None:
    chance = random.Random(SEED * 1000 + number)
    kind = KINDS[number % len(KINDS)]
    moment = chance.uniform(0.2, 0.95) * bench.seconds
    shutil.rmtree(bench.work)
    told = f"kind {kind}, after {moment:.1f} s of {bench.seconds:.1f}, REKINDLE_SEED={SEED}"

    first = bench.start()
    try:
        first.wait(timeout=moment)
    except subprocess.TimeoutExpired:
        kill(kind, first, bench)
    first.wait(timeout=120)

    assert bench.start().wait(timeout=600) == 0, f"{told}\n{bench.said()}"
    assert bench.artefacts() == bench.reference, told
    done: dict[object, int] = {}
    for entry in bench.journal():
        if entry["event"] == "done" and entry["step"] != "preflight":
            done[entry["step"]] = done.get(entry["step"], 0) + 1
    assert set(done.values()) == {1}, f"{told}: {done}"
    assert bench.processes() == [], f"{told}: something of the build is still running"


def compiling_ninja(pid: int) -> psutil.Process | None:
    """Rekindle's own child that compiles; not CMake's in a trial, nor one that is only asked."""
    for child in psutil.Process(pid).children():
        try:
            words = child.cmdline()
            if child.name() == "ninja" and "-C" in words and "-n" not in words:
                return child
        except psutil.NoSuchProcess:
            continue
    return None


def test_an_orphaned_ninja_is_ended_before_the_build_goes_on(bench: Bench) -> None:
    """Rekindle alone is killed while ninja compiles; ninja goes on, and must not write beside the next one."""
    shutil.rmtree(bench.work)
    first = bench.start()
    ninja = None
    limit = time.monotonic() + 300
    while ninja is None and time.monotonic() < limit:
        ninja = compiling_ninja(first.pid)
        time.sleep(0.02)
    assert ninja is not None, bench.said()
    # Held still, so that it is certainly alive when the next run comes, however slow this machine is.
    ninja.suspend()
    first.kill()
    first.wait(timeout=60)
    assert ninja.is_running()
    assert bench.start().wait(timeout=600) == 0, bench.said()
    assert not ninja.is_running() or ninja.status() == psutil.STATUS_ZOMBIE
    assert [entry for entry in bench.journal() if entry["event"] == "orphans"]
    assert bench.artefacts() == bench.reference


def test_a_second_run_in_the_same_folder_is_refused(bench: Bench) -> None:
    shutil.rmtree(bench.work)
    first = bench.start()
    try:
        limit = time.monotonic() + 60
        while not (bench.work / "running.json").exists() and time.monotonic() < limit:
            time.sleep(0.05)
        second = subprocess.run(
            [sys.executable, "-m", "rekindle", "build", str(bench.plan), "--work", str(bench.work)],
            env={**os.environ, "PYTHONPATH": str(Path(rekindle.__file__).parents[1])},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert second.returncode == 12
        assert str(first.pid) in second.stderr
    finally:
        assert first.wait(timeout=600) == 0
