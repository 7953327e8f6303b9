"""What a fleet costs besides building: planning, coordination, and a matrix that is done.

    python -m benchmarks.fleet [--jobs 100] [--plan 100 1000 10000]

Coordination is the way of a job through client, scheduler and worker and back, journal included, with a build that
answers at once. Wall and processor time are given: on a busy machine only the second says something about Rekindle.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rekindle.core import codec
from rekindle.fleet import dispatch, local, planning, shelved, work
from rekindle.fleet.dispatch import Dispatcher, DispatchRules, call
from rekindle.fleet.intake import Intake
from rekindle.fleet.job import JobState
from rekindle.fleet.journal import FleetJournal
from rekindle.fleet.order import JobOrder, JobResult
from rekindle.fleet.run import _client
from rekindle.fleet.shelved import ShelvedJob
from rekindle.fleet.state import FleetState
from rekindle.wheels.shelf import shelf

SPARK = Path(__file__).resolve().parents[1] / "tests" / "projects" / "spark"
CARDS = ["5.0", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0"]


def answer(text: str) -> str:
    """In place of a build: an answer at once."""
    order = codec.from_json(text, JobOrder)
    return codec.to_json(JobResult(key=order.key, done=False, seconds=0.0, error="nothing was built"), indent=0)


def sets(count: int) -> list[str]:
    found = (";".join(each) for size in range(1, 6) for each in itertools.combinations(CARDS, size))
    return list(itertools.islice(found, count))


def matrix(folder: Path, jobs: int) -> Path:
    shutil.copytree(SPARK, folder / "spark")
    path = folder / "matrix.toml"
    text = f'project = "spark"\ncuda = "12.4"\ngpu = {json.dumps(sets(jobs))}\narch = "{os.uname().machine}"\n'
    path.write_text(text + '[projects.spark]\nbuild = "spark/build.toml"\n', encoding="utf-8")
    return path


async def coordinate(folder: Path, jobs: int) -> tuple[float, float]:
    import dask

    from rekindle.fleet import scheduler

    dask.config.set(scheduler.settings())
    planned = planning.make(matrix(folder, jobs))
    state = FleetState(folder / "state")
    state.keep(planned)
    intake = Intake(planned, state, folder / "shelf", call)
    rules = DispatchRules()
    dispatcher = Dispatcher(planned, state, FleetJournal(state.journal), intake, rules, lambda _: None)
    work.build = answer  # type: ignore[assignment]
    dispatch.lacks = lambda job, have: ()  # type: ignore[assignment]
    async with local.fleet(folder / "w", workers=1, slots=4, memory_gb=8, cache=None) as (address, place):
        client = await _client(address, place)
        while not (await client.scheduler.identity())["workers"]:
            await asyncio.sleep(0.1)
        begun, cpu = time.monotonic(), time.process_time()
        await dispatcher.session(client)
        spent = time.monotonic() - begun, time.process_time() - cpu
        await client._close(fast=True)
    return spent[0] / jobs * 1000, spent[1] / jobs * 1000


def unchanged(folder: Path, jobs: int) -> tuple[float, int]:
    """A matrix that is on the shelf, run once more by the command."""
    path = matrix(folder, jobs)
    from tests.support.small_wheels import make

    (entry,) = shelf.add(folder / "shelf", [make(folder / "made")])
    for job in planning.make(path).plan.jobs:
        assert job.key and job.lock and job.state is JobState.BUILD
        done = ShelvedJob(key=job.key, wheel=entry.file, sha256=entry.sha256, lock=job.lock)
        shelved.record(folder / "shelf", done)
    begun = time.monotonic()
    words = [sys.executable, "-m", "rekindle", "fleet", "run", str(path), "--shelf", str(folder / "shelf"), "--json"]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    return time.monotonic() - begun, json.loads(said.stdout)["counts"]["done"]


def plans(folder: Path, counts: list[int]) -> list[tuple[int, float, float, int]]:
    found = []
    for count in counts:
        pythons, systems, releases = ["3.9", "3.10", "3.11", "3.12", "3.13"], ["linux", "windows"], ["2.7.1", "2.15.0"]
        cards = sets(count // 20)
        path = folder / f"plan-{count}.toml"
        lists: dict[str, Any] = {
            "torch": releases, "cuda": ["12.6"], "gpu": cards, "python": pythons, "os": systems,
        }  # fmt: skip
        path.write_text("".join(f"{name} = {json.dumps(each)}\n" for name, each in lists.items()), encoding="utf-8")
        begun, cpu = time.monotonic(), time.process_time()
        made = planning.make(path)
        found.append((len(made.plan.jobs), time.monotonic() - begun, time.process_time() - cpu, made.plan.questions))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--plan", type=int, nargs="*", default=[100, 1000])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for jobs, wall, cpu, questions in plans(root, given.plan):
            each = cpu / jobs * 1000
            print(f"plan {jobs:,} jobs: {wall:.1f} s, {cpu:.1f} s of processor ({each:.1f} ms each), {questions} asked")
        (root / "u").mkdir()
        wall, done = unchanged(root / "u", given.jobs)
        print(f"unchanged matrix: {wall:.1f} s, {done} jobs done, nothing built")
        (root / "c").mkdir()
        wall, cpu = asyncio.run(coordinate(root / "c", given.jobs))
        print(f"coordination: {wall:.1f} ms a job, {cpu:.1f} ms of the client's and the scheduler's processor time")
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()
