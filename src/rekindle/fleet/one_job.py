"""`rekindle fleet job`: one job of a matrix, on this machine, without a scheduler: what exported workflows run.

A job that does not fit into the time that a runner has is stopped in good order, and the same command goes on from
its journal, or on another runner from the compile cache.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from rekindle.build.configure import request as build_request
from rekindle.core.errors import RekindleError, StepFailed, UsageError
from rekindle.core.untrusted import Sha256
from rekindle.fleet import announcement, order_run, planning, shelved, sources
from rekindle.fleet.factory import site as published
from rekindle.fleet.intake import order_of
from rekindle.fleet.job import FleetJob, JobKind, JobOrder, JobResult, JobState
from rekindle.fleet.planning import Planned
from rekindle.fleet.shelved import ShelvedJob
from rekindle.fleet.state import keys_named
from rekindle.machine.probe import look

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


def carry(matrix: Path, word: str, place: JobPlace, *, tell: Callable[[str], None]) -> OneJob:
    if place.site:
        published.bring(place.site, place.shelf)
    planned = planning.make(matrix, shelf_folder=place.shelf)
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
        _order(planned, job, place),
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


def _order(planned: Planned, job: FleetJob, place: JobPlace) -> JobOrder:
    assert job.key is not None and job.lock is not None
    folder = planned.sources.get(job.key)
    wheel: ShelvedJob | None = None
    if job.needs:
        wheel = shelved.jobs_on(place.shelf).get(job.needs[0])
        if wheel is None:
            raise UsageError("the torch that this job needs is not on the shelf", hint="build that job first")
        if place.site:
            published.fetch_wheel(place.site, place.shelf, wheel)
        if not (received := place.work / "received" / wheel.sha256).exists():
            received.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place.shelf / "wheels" / wheel.wheel, received)
    written = build_request.read(Path(folder)) if folder and job.lock.kind is JobKind.CMAKE else None
    return order_of(planned, job, _packed(Path(folder), job, place) if folder else None, wheel, written)


def _packed(folder: Path, job: FleetJob, place: JobPlace) -> Sha256:
    data = sources.pack(sources.root_of(folder, job))
    sha256 = Sha256(hashlib.sha256(data).hexdigest())
    (place.work / "received").mkdir(parents=True, exist_ok=True)
    (place.work / "received" / sha256).write_bytes(data)
    return sha256


def _shelved(job: FleetJob, result: JobResult, folder: Path, place: Path) -> OneJob:
    assert job.key is not None and result.wheel is not None
    report = folder / result.report.name if result.report else None
    wheel = folder / result.wheel.name
    entry = shelved.shelve(place, job, wheel, result.seconds, report=report, build=result.facts)
    return OneJob(
        key=job.key, name=job.name, state="done", wheel=entry.file, sha256=entry.sha256, seconds=result.seconds
    )
