"""What a fleet costs besides building: planning, coordination, and a matrix that is done.

    python -m benchmarks.fleet [--jobs 100] [--plan 100 1000 10000]

Coordination is the way of a job through client, scheduler and worker and back, journal included, with a build that
answers at once. Wall and processor time are given: on a busy machine only the second says something about Rekindle.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from rekindle.core import codec
from rekindle.fleet import dispatch, planning, run, shelved, work
from rekindle.fleet.dispatch import Dispatcher, DispatchRules, call
from rekindle.fleet.intake import Intake
from rekindle.fleet.job import JobState
from rekindle.fleet.run import _client
from rekindle.fleet.shelved import ShelvedJob
from rekindle.fleet.state import FleetJournal, FleetState
from rekindle.wheels.shelf import shelf

SPARK = Path(__file__).resolve().parents[1] / "tests" / "projects" / "spark"
SLOTS = 4
CARDS = ["5.0", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0"]


ANSWER = '''
from rekindle.core import codec
from rekindle.fleet.job import JobOrder, JobResult


def answer(text):
    """In place of a build: an answer at once."""
    order = codec.from_json(text, JobOrder)
    return codec.to_json(JobResult(key=order.key, done=False, seconds=0.0, error="nothing was built"), indent=0)
'''
"""A module of its own, which the workers get: like the fleet's own functions it travels by name."""


def sets(count: int) -> list[str]:
    found = (";".join(each) for size in range(1, 6) for each in itertools.combinations(CARDS, size))
    return list(itertools.islice(found, count))


def matrix(folder: Path, jobs: int) -> Path:
    shutil.copytree(SPARK, folder / "spark")
    path = folder / "matrix.toml"
    text = f'project = "spark"\ncuda = "12.4"\ngpu = {json.dumps(sets(jobs))}\narch = "{os.uname().machine}"\n'
    path.write_text(text + '[projects.spark]\nbuild = "spark/build.toml"\n', encoding="utf-8")
    return path


class Cost(NamedTuple):
    """Milliseconds a job: of wall time, and of processor time of client and scheduler together."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} ms a job, {self.cpu:.1f} ms of the client's and the scheduler's processor time"


async def coordinate(folder: Path, jobs: int) -> tuple[Cost, Cost]:
    """The fleet's way, then plain Dask: the same orders, scheduler, worker, certificates and jobs at a time."""
    import dask

    from rekindle.fleet import scheduler

    dask.config.set(scheduler.settings())
    planned = planning.make(matrix(folder, jobs))
    state = FleetState(folder / "state")
    state.keep(planned)
    intake = Intake(planned, state, folder / "shelf", call)
    rules = DispatchRules()
    dispatcher = Dispatcher(planned, state, FleetJournal(state.journal), intake, rules, lambda _: None)
    module = folder / "answers.py"
    module.write_text(ANSWER, encoding="utf-8")
    async with run.local_fleet(folder / "w", workers=1, slots=SLOTS, memory_gb=8, cache=None) as (address, place):
        client = await _client(address, place)
        while not (await client.scheduler.identity())["workers"]:
            await asyncio.sleep(0.1)
        await client.upload_file(str(module))
        sys.path.insert(0, str(folder))
        work.build = importlib.import_module("answers").answer
        with mock.patch.object(dispatch, "lacks", return_value=()):
            ours = await timed(dispatcher.session(client), jobs)
        assert len(dispatcher.ended) == jobs
        (there,) = (await client.scheduler.identity())["workers"]
        orders = [codec.to_json(await intake.order(client, there, job, None), indent=0) for job in planned.plan.jobs]
        plain = await timed(plainly(client, there, orders), jobs)
        await client._close(fast=True)
    return ours, plain


async def plainly(client: Any, address: str, orders: list[str]) -> None:
    """The peer: nothing but Dask, as many at a time."""
    left = iter(orders)

    async def one_after_another() -> None:
        for order in left:
            await call(client, address, work.build, order)

    await asyncio.gather(*(one_after_another() for _ in range(SLOTS)))


async def timed(what: Coroutine[Any, Any, None], jobs: int) -> Cost:
    begun, cpu = time.monotonic(), time.process_time()
    await what
    return Cost((time.monotonic() - begun) / jobs * 1000, (time.process_time() - cpu) / jobs * 1000)


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
        print(f"load {os.getloadavg()[0]:.1f}, priority {os.nice(0)}")
        (root / "u").mkdir()
        wall, done = unchanged(root / "u", given.jobs)
        print(f"unchanged matrix: {wall:.1f} s, {done} jobs done, nothing built")
        (root / "c").mkdir()
        ours, plain = asyncio.run(coordinate(root / "c", given.jobs))
        print(f"coordination: {ours}")
        print(f"plain Dask:   {plain}")
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()
