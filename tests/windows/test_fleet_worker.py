"""A worker of a fleet as Windows runs it: it offers itself over TLS, announces what it has, takes files and answers.

The build itself is another program, with tests of its own here; there is no Visual Studio in Wine.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from pathlib import Path

import pytest

from rekindle.core import codec
from rekindle.fleet import planning, scheduler, work, worker
from rekindle.fleet.announcement import Announcement, lacks
from rekindle.fleet.dispatch import call
from rekindle.fleet.intake import Intake
from rekindle.fleet.run import _client
from rekindle.fleet.state import FleetState
from support.artefacts import unverified
from support.fleets import pebble

metrics = pytest.importorskip("distributed.metrics")


@pytest.fixture
def coarse_clock() -> None:
    """Dask waits until the clock stands still for five readings, as that of Windows does; Wine's never does."""
    if max(collections.Counter(time.time() for _ in range(10)).values()) < 5:
        unverified("Dask does not start under Wine: it waits for a clock as coarse as that of Windows")


@pytest.mark.usefixtures("coarse_clock")
def test_a_worker_announces_itself_takes_the_files_of_a_job_and_answers(tmp_path: Path) -> None:
    lines = pebble(tmp_path, "pebble")
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(f'project = "pebble"\ncuda = "cpu"\nos = "windows"\n{lines}', encoding="utf-8")
    planned = planning.make(matrix)
    (job,) = planned.plan.jobs
    place = tmp_path / "certs"
    scheduler.make(place, days=1)
    state = FleetState(tmp_path / "state")

    async def session() -> tuple[Announcement, list[object]]:
        async with scheduler.started("127.0.0.1", 0, place) as running:
            folder = tmp_path / "worker"
            folder.mkdir()
            settings = worker.WorkerSettings(
                scheduler=running.address, folder=str(folder), name="windows", certs=str(place)
            )
            client = await _client(running.address, place)
            offering = asyncio.ensure_future(worker.offer(settings))
            try:
                while not (seen := (await client.scheduler.identity())["workers"]):
                    assert not offering.done(), "the worker ended"
                    await asyncio.sleep(0.2)
                ((address, told),) = seen.items()
                have = codec.from_json(told["rekindle"], Announcement)
                order = await Intake(planned, state, tmp_path / "shelf", call).order(client, address, job, None)
                answers = [
                    await call(client, address, work.has_file, str(order.source)),
                    await call(client, address, work.stop, order.key),
                ]
            finally:
                offering.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await offering
                await client._close(fast=True)
            return have, answers

    have, answers = asyncio.run(asyncio.wait_for(session(), 600))
    assert (have.name, have.system, have.machine) == ("windows", "windows", "x86_64")
    assert have.pythons and have.memory_gb > 0 and have.disk_gb > 0 and have.key
    assert lacks(job, have) == ()
    assert answers == [-1, False], "the source is there, with its hash; and no such job runs"
