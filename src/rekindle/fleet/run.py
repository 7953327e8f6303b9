"""`rekindle fleet run`: from a matrix to wheels on a shelf, whatever dies on the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import files, python
from rekindle.core.errors import FetchFailed
from rekindle.fleet import planning, scheduler, shelved
from rekindle.fleet.dispatch import Dispatcher, DispatchRules, SchedulerLost, call
from rekindle.fleet.intake import Intake
from rekindle.fleet.journal import FleetJournal, event
from rekindle.fleet.planning import Planned
from rekindle.fleet.state import FleetState, FleetStatus, status_of
from rekindle.fleet.worker import default_slots
from rekindle.machine.probe import look

Tell = Callable[[str], None]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Without a `scheduler` it is this machine alone, with `workers` processes of `slots` jobs each."""

    shelf: Path
    scheduler: str | None = None
    certs: Path | None = None
    workers: int | None = None
    slots: int | None = None
    work: Path | None = None
    rules: DispatchRules = DispatchRules()


def run(
    matrix: Path, state: FleetState, settings: RunSettings, *, machines: tuple[Path, ...] = (), tell: Tell
) -> FleetStatus:
    """Plan, then build what is not done. A run that was cut off is taken up: its journal knows what is finished."""
    with state.held():
        planned = planning.make(matrix, machines=machines, shelf_folder=settings.shelf, workers=settings.workers or 1)
        state.keep(planned)
        return _carry_out(planned, state, settings, tell)


def resume(state: FleetState, settings: RunSettings, *, tell: Tell) -> FleetStatus:
    """Go on with the plan as it was made, even if the matrix has changed since."""
    with state.held():
        return _carry_out(state.planned(), state, settings, tell)


def retry(state: FleetState, settings: RunSettings, keys: tuple[str, ...], *, tell: Tell) -> FleetStatus:
    """Try again what failed, was set aside, was cancelled or found no worker."""
    with state.held():
        planned = state.planned()
        journal = FleetJournal(state.journal)
        for job in status_of(state, running=True).jobs:
            named = job.key in keys if keys else job.state in ("failed", "aside", "unplaced")
            if job.key and named and job.state != "done":
                journal.write(event("retry", key=job.key, name=job.name))
        return _carry_out(planned, state, settings, tell)


def _carry_out(planned: Planned, state: FleetState, settings: RunSettings, tell: Tell) -> FleetStatus:
    begun = time.monotonic()
    journal = FleetJournal(state.journal)
    journal.write(event("start", name=str(settings.shelf)))
    intake = Intake(planned, state, settings.shelf, call)
    dispatcher = Dispatcher(planned, state, journal, intake, settings.rules, tell)
    if not dispatcher.over:
        asyncio.run(_drive(dispatcher, state, settings, tell))
    count_wheels(dispatcher, settings.shelf)
    seconds = round(time.monotonic() - begun, 3)
    journal.write(event("finish", seconds=seconds))
    journal.settle()
    return status_of(state, running=False, seconds=seconds)


def count_wheels(dispatcher: Dispatcher, shelf: Path) -> None:
    """At the end every job that is done has its wheel on the shelf; one that has not is not done."""
    there = shelved.jobs_on(shelf)
    for key in [key for key, word in dispatcher.ended.items() if word == "done" and key not in there]:
        dispatcher.final("failed", dispatcher.jobs[key], error="its wheel is not on the shelf")


async def _drive(dispatcher: Dispatcher, state: FleetState, settings: RunSettings, tell: Tell) -> None:
    if settings.scheduler is not None:
        await _with_scheduler(dispatcher, settings.scheduler, settings.certs, settings.rules.patience, tell)
        return
    machine = look()
    memory = (machine.memory.usable or 0) / 1024**3
    slots = settings.slots or 1
    workers = settings.workers or default_slots(machine.processor.cores or 1, memory)
    folder = settings.work or state.root / "work"
    async with local_fleet(folder, workers=workers, slots=slots, memory_gb=memory, cache=settings.rules.cache) as (
        address,
        place,
    ):
        await _with_scheduler(dispatcher, address, place, settings.rules.patience, tell)


@contextlib.asynccontextmanager
async def local_fleet(
    folder: Path, *, workers: int, slots: int, memory_gb: float, cache: str | None
) -> AsyncIterator[tuple[str, Path]]:
    """The address and the certificates of a scheduler with so many workers; all of it ends with the block.

    Loopback is shared with every user of the machine: here too nobody gets in without a certificate.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with files.scratch("fleet") as secret:
        place = secret / "certs"
        scheduler.make(place, days=30)
        async with scheduler.started("127.0.0.1", 0, place) as running:
            shared = ["--scheduler", running.address, "--certs", str(place), "--slots", str(slots)]
            shared += ["--memory", f"{max(0.5, memory_gb / workers):.3f}"]
            started = [
                subprocess.Popen(
                    python.own(
                        "rekindle.fleet.confined", "fleet", "worker", *shared,
                        "--name", f"local-{number}", "--folder", str(folder / f"worker-{number}"),
                    ),
                    env={**os.environ, "REKINDLE_FLEET_CACHE": cache or ""},
                    stdin=subprocess.DEVNULL,
                )
                for number in range(1, workers + 1)
            ]  # fmt: skip
            try:
                yield running.address, place
            finally:
                for process in started:
                    process.terminate()
                for process in started:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=30)


async def _with_scheduler(
    dispatcher: Dispatcher, address: str, place: Path | None, patience: float, tell: Tell
) -> None:
    """One session after another: a scheduler that comes back finds the fleet where it was."""
    since = time.monotonic()
    while not dispatcher.over:
        client = None
        try:
            client = await _client(address, place)
            await dispatcher.session(client)
        except (SchedulerLost, OSError, asyncio.TimeoutError) as error:
            since = time.monotonic() if client is not None else since
            if time.monotonic() - since > patience:
                message = f"the scheduler at {address} cannot be reached: {error}"
                raise FetchFailed(message, hint="start it again, then `rekindle fleet resume`") from error
            tell("the scheduler cannot be reached; trying again")
            await asyncio.sleep(1)
        finally:
            if client is not None:
                await _close(client)


async def _client(address: str, place: Path | None) -> Any:
    distributed = scheduler.configured(place, "client")
    return await distributed.Client(
        address, asynchronous=True, set_as_default=False, timeout=10, heartbeat_interval=2000
    )


async def _close(client: Any) -> None:
    try:
        await asyncio.wait_for(client._close(fast=True), 10)
    except Exception:
        # It was broken already.
        return
