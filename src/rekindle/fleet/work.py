"""The worker's half: files come in, an order is carried out in a folder of its own, files go out.

These functions are called by Dask on the worker. Orders and results are JSON; files travel in pieces of bytes.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from rekindle.core import codec, paths, untrusted
from rekindle.core.errors import BadInput, RekindleError
from rekindle.core.untrusted import InsidePath, Sha256
from rekindle.fleet import order_run
from rekindle.fleet.announcement import Announcement
from rekindle.fleet.job import JobOrder, JobResult, JobStep

PIECE = 8 * 1024 * 1024
TOPIC = "rekindle"


class _Place:
    """The worker that this process is."""

    folder: Path
    announcement: Announcement
    cache: str | None = None
    running: dict[str, order_run.Running] = {}  # noqa: RUF012 - one process is one worker
    lock = threading.Lock()


def settle(folder: Path, announcement: Announcement, cache: str | None) -> None:
    """Say once, when the worker starts, where it keeps what."""
    _Place.folder = folder
    _Place.announcement = announcement
    _Place.cache = cache


def end_all() -> None:
    """The worker is going: its jobs go with it. They go on from their journals."""
    with _Place.lock:
        running = list(_Place.running.values())
    for job in running:
        job.end()


def job_folder(key: str) -> Path:
    return _Place.folder / "jobs" / untrusted.checked(Sha256, key, "the order")[:16]


def received_file(sha256: str) -> Path:
    return _Place.folder / "received" / untrusted.checked(Sha256, sha256, "the order")


def has_file(sha256: str) -> int:
    """How many bytes of this file are here: all of them, or those that came before a connection broke."""
    whole, part = received_file(sha256), received_file(sha256).with_suffix(".part")
    if whole.is_file():
        return -1
    return part.stat().st_size if part.is_file() else 0


def take_piece(sha256: str, offset: int, data: bytes, last: bool) -> None:
    """The next bytes of a file; with the last its hash must be the one it was announced with."""
    whole, part = received_file(sha256), received_file(sha256).with_suffix(".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("r+b" if part.exists() else "wb") as stream:
        stream.seek(offset)
        stream.truncate()
        stream.write(data)
    if last:
        if paths.sha256_of(part) != sha256:
            part.unlink()
            raise BadInput("a file arrived with other bytes than were sent", hint="it is sent again")
        part.replace(whole)


def give_piece(key: str, name: str, offset: int) -> bytes:
    """The next bytes of a file below the job's folder."""
    with untrusted.checked(InsidePath, name, "the question").below(job_folder(key)).open("rb") as stream:
        stream.seek(offset)
        return stream.read(PIECE)


def stop(key: str) -> bool:
    """End a running job because it was cancelled."""
    with _Place.lock:
        job = _Place.running.get(key)
    if job is None:
        return False
    job.cancelled = True
    job.end()
    return True


def forget(key: str) -> None:
    """The client has what it came for: the job's folder is not needed any more."""
    shutil.rmtree(job_folder(key), ignore_errors=True)


def build(text: str) -> str:
    """Carry out an order. Whatever goes wrong with it is an answer, not an error of the worker."""
    order = codec.from_json(text, JobOrder, name="the order")
    if order.lock.key != order.key:
        raise BadInput("the order's key is not that of its lock", hint="the fleet's machines run different versions")
    job = order_run.Running(
        order,
        folder=job_folder(order.key),
        received=received_file,
        announcement=_Place.announcement,
        cache=order.cache or _Place.cache,
        tell=_teller(order.key),
    )
    with _Place.lock:
        before = _Place.running.setdefault(order.key, job)
    if before is not job:
        # A client that died left it running: its successor waits for the same result.
        return before.answer()
    try:
        job.say(codec.to_json(_carried_out(job), indent=0))
    finally:
        job.say("")
        with _Place.lock:
            _Place.running.pop(order.key, None)
    return job.answer()


def _carried_out(job: order_run.Running) -> JobResult:
    try:
        return job.run()
    except (RekindleError, OSError) as error:
        full = order_run.is_full(error)
        return JobResult(
            key=job.order.key,
            done=False,
            seconds=job.seconds,
            error=str(error),
            code=getattr(error, "exit_code", None),
            diagnosis=None if job.cancelled else order_run.diagnosed(job.folder),
            log=order_run.log_tail(job.folder),
            cancelled=job.cancelled,
            full=full,
        )


def _teller(key: str) -> Callable[[str], None]:
    def tell(step: str) -> None:
        from distributed import get_worker

        with contextlib.suppress(Exception):
            # Progress is a courtesy: a job does not fail for it.
            said = JobStep(key=key, step=step, worker=_Place.announcement.name)
            get_worker().log_event(TOPIC, msgspec.to_builtins(said))

    return tell
