"""`rekindle fleet run`: from a matrix to wheels on a shelf, whatever dies on the way.

`rekindle fleet job` is one job on this machine, without a scheduler: what exported workflows run. One that does not fit
into the time that a runner has is stopped in good order, and the same command goes on from its journal, or on another
runner from the compile cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.configure import request as build_request
from rekindle.core import files, python
from rekindle.core.errors import FetchFailed, RekindleError, StepFailed, UsageError
from rekindle.fleet import announcement, order_run, planning, scheduler, shelved
from rekindle.fleet import job as sources
from rekindle.fleet.dispatch import Dispatcher, DispatchRules, SchedulerLost, call
from rekindle.fleet.factory import site as published
from rekindle.fleet.intake import Intake, order_of
from rekindle.fleet.job import FleetJob, JobKind, JobOrder, JobResult, JobState
from rekindle.fleet.planning import Planned
from rekindle.fleet.shelved import ShelvedJob
from rekindle.fleet.state import FAILED, FleetJournal, FleetState, FleetStatus, JobStatus, event, keys_named, status_of
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
    """Plan, then build what is not done. A run that was cut off is taken up: its journal knows what is finished.

    What was cancelled was so for the run before.
    """
    with state.held():
        planned = planning.make(matrix, machines=machines, shelf_folder=settings.shelf, workers=settings.workers or 1)
        state.keep(planned)
        _again(state, lambda job: job.state == "cancelled")
        return _carry_out(planned, state, settings, tell)


def resume(state: FleetState, settings: RunSettings, *, tell: Tell) -> FleetStatus:
    """Go on with the plan as it was made, even if the matrix has changed since."""
    with state.held():
        return _carry_out(state.planned(), state, settings, tell)


def retry(state: FleetState, settings: RunSettings, keys: tuple[str, ...], *, tell: Tell) -> FleetStatus:
    """Try again what failed, was set aside, was cancelled or found no worker."""
    with state.held():
        planned = state.planned()
        _again(state, lambda job: job.key in keys if keys else job.state in FAILED)
        return _carry_out(planned, state, settings, tell)


def _again(state: FleetState, meant: Callable[[JobStatus], bool]) -> None:
    """What an earlier `cancel` asked for, and no run has read, is over as well."""
    for key in state.cancelled():
        state.answer_cancel(key)
    journal = FleetJournal(state.journal)
    for job in status_of(state, running=True).jobs:
        if job.key and job.state != "done" and meant(job):
            journal.write(event("retry", key=job.key, name=job.name))


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


GOES_ON = 75
"""The exit code of a job whose time was up."""


class OneJob(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle fleet job`. `state` is `done`, `kept` (it was on the shelf) or `unfinished`."""

    schema: str = "rekindle.fleet-job/1"
    key: str
    name: str
    state: str
    wheel: str | None = None
    sha256: str | None = None
    seconds: float = 0.0


class JobPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where one job is built, and how long it may take."""

    shelf: Path
    work: Path
    cache: str | None = None
    minutes: float | None = None
    site: str | None = None
    """A factory's published pages: what is there is done, and its wheels can be fetched."""


def run_job(matrix: Path, word: str, place: JobPlace, *, tell: Callable[[str], None]) -> OneJob:
    records = published.bring(place.site, place.shelf) if place.site else None
    there = records.hashes if records else ()
    planned = planning.make(matrix, shelf_folder=place.shelf, published=there)
    (key, *more) = keys_named(planned, (word,))
    if more:
        raise UsageError(f"`{word}` names several jobs", hint="give more of the key")
    job = next(each for each in planned.plan.jobs if each.key == key)
    if job.state is JobState.DONE:
        return OneJob(key=key, name=job.name, state="kept", wheel=job.wheel)
    place.work.mkdir(parents=True, exist_ok=True)
    have = announcement.of(look(), name="here", folder=place.work, slots=1)
    if missing := announcement.lacks(_here(job), have):
        raise UsageError(f"`{job.name}` cannot be built here: it needs {', '.join(missing)}", hint=_help(missing))
    running = order_run.Running(
        _order(planned, job, place, there),
        folder=place.work / "jobs" / key[:16],
        received=lambda sha256: place.work / "received" / sha256,
        announcement=have,
        cache=place.cache,
        tell=lambda step: tell(f"{job.name}: {step}"),
    )
    timer = _timer(running, place.minutes)
    try:
        result = running.run()
    except RekindleError as error:
        if running.cancelled:
            return OneJob(key=key, name=job.name, state="unfinished", seconds=running.seconds)
        found = order_run.diagnosed(running.folder)
        cause = f": {found.causes[0].title}" if found else ""
        raise StepFailed(f"{error.message}{cause}", hint=found.causes[0].fix.text if found else error.hint) from error
    finally:
        if timer is not None:
            timer.cancel()
    return _shelved(job, result, running.folder, place.shelf)


def _here(job: FleetJob) -> FleetJob:
    """Disk and memory of a runner are for its owner to judge: a build that runs short says so."""
    estimate = msgspec.structs.replace(job.estimate, disk_gb=0.0, memory_gb=0.0)
    return msgspec.structs.replace(job, estimate=estimate)


def _help(missing: tuple[str, ...]) -> str:
    words = [each.replace("CUDA ", "cuda==") for each in missing if each.startswith("CUDA ")]
    return f"`rekindle toolchain install {' '.join(words)}` brings it" if words else "run it on a machine that has it"


def _timer(running: order_run.Running, minutes: float | None) -> threading.Timer | None:
    if minutes is None:
        return None

    def stop() -> None:
        running.cancelled = True
        running.end()

    timer = threading.Timer(minutes * 60, stop)
    timer.daemon = True
    timer.start()
    return timer


def _order(planned: Planned, job: FleetJob, place: JobPlace, there: Collection[str]) -> JobOrder:
    assert job.key is not None and job.lock is not None
    folder = planned.sources.get(job.key)
    wheel: ShelvedJob | None = None
    if job.needs:
        wheel = shelved.jobs_on(place.shelf, there).get(job.needs[0])
        if wheel is None:
            raise UsageError("the torch that this job needs is not on the shelf", hint="build that job first")
        if place.site:
            published.fetch_wheel(place.site, place.shelf, wheel)
        if not (received := place.work / "received" / wheel.sha256).exists():
            received.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place.shelf / "wheels" / wheel.wheel, received)
    written = build_request.read(Path(folder)) if folder and job.lock.kind is JobKind.CMAKE else None
    sha256 = None
    if folder:
        sha256, data = sources.packed(folder, job)
        (place.work / "received").mkdir(parents=True, exist_ok=True)
        (place.work / "received" / sha256).write_bytes(data)
    return order_of(planned, job, sha256, wheel, written)


def _shelved(job: FleetJob, result: JobResult, folder: Path, place: Path) -> OneJob:
    assert job.key is not None and result.wheel is not None
    report = folder / result.report.name if result.report else None
    wheel = folder / result.wheel.name
    entry = shelved.shelve(place, job, wheel, result.seconds, report=report, build=result.facts)
    return OneJob(
        key=job.key, name=job.name, state="done", wheel=entry.file, sha256=entry.sha256, seconds=result.seconds
    )
