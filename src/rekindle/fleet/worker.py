"""`rekindle fleet worker`: offers this machine to a fleet.

The command itself only watches over a process that does the work: when that dies with a job, or loses its scheduler,
it is started again and offers itself under the same name, with the same folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from rekindle.core import codec, paths, python
from rekindle.fleet import announcement, scheduler, work

AGAIN = 75
"""The exit code of a worker that lost its scheduler."""
_WAIT = 1.0
_SMALL_TASKS = 3
"""Threads beside those of the jobs: pieces of files, cancelling, logs."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    scheduler: str
    folder: str
    name: str
    slots: int = 1
    certs: str | None = None
    memory_gb: float | None = None
    cache: str | None = None
    provision: tuple[str, ...] = ()
    """Tools that it may assemble for a job: `cuda==12.6`."""


def default_name() -> str:
    import socket

    return socket.gethostname().partition(".")[0] or "worker"


def default_folder(name: str) -> Path:
    return paths.cache_folder("fleet", name)


def default_slots(cores: int, memory_gb: float) -> int:
    """Jobs at a time: each should have eight cores and 16 GB, or it only takes longer."""
    return max(1, min(cores // 8, int(memory_gb // 16)))


def serve(settings: WorkerSettings, tell: Callable[[str], None]) -> int:
    """Keep a worker running until this command is stopped."""
    scheduler.secured(Path(settings.certs) if settings.certs else None, "worker")
    folder = Path(settings.folder)
    folder.mkdir(parents=True, exist_ok=True)
    stopping: list[int] = []

    def stop(number: int, frame: object) -> None:
        stopping.append(number)

    old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not stopping:
            code = _one(settings, stopping)
            if stopping or code == 0:
                break
            tell(f"the worker process {_ended(code)}; starting it again")
            time.sleep(_WAIT)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    return 0


def _one(settings: WorkerSettings, stopping: list[int]) -> int:
    process = subprocess.Popen(python.own("rekindle.fleet.worker"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    with contextlib.suppress(OSError), process.stdin:  # a cache's address has its password in it: no file, no word
        process.stdin.write(codec.to_json(settings).encode("utf-8"))
    while True:
        try:
            return process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            if stopping:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=20)
                process.kill()
        except KeyboardInterrupt:
            stopping.append(signal.SIGINT)


def _ended(code: int) -> str:
    if code == AGAIN:
        return "lost its scheduler"
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"


async def offer(settings: WorkerSettings) -> int:
    """The worker itself: one try with one scheduler."""
    from rekindle.machine.probe import look

    distributed = scheduler.configured(Path(settings.certs) if settings.certs else None, "worker")
    folder = Path(settings.folder)
    machine = look()
    offered = announcement.provisions(settings.provision)
    told = announcement.of(
        machine,
        name=settings.name,
        folder=folder,
        slots=settings.slots,
        memory_gb=settings.memory_gb,
        offered=offered,
    )
    work.settle(folder, told, settings.cache)
    text = codec.to_json(told, indent=0)
    stop = scheduler.stopper()
    try:
        worker = await distributed.Worker(
            settings.scheduler,
            nthreads=settings.slots + _SMALL_TASKS,
            name=settings.name,
            memory_limit=0,
            local_directory=str(folder / "dask"),
            startup_information={"rekindle": lambda _: text},
            dashboard_address="127.0.0.1:0",
            dashboard=False,
        )
    except (OSError, TimeoutError, ValueError, asyncio.TimeoutError) as error:
        print(f"cannot reach {settings.scheduler}: {error}", file=sys.stderr)
        return AGAIN
    ended = asyncio.ensure_future(worker.finished())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.get_running_loop().run_in_executor(None, work.end_all)
    if stop.is_set():
        with contextlib.suppress(Exception):
            await asyncio.wait_for(worker.close(timeout=5, executor_wait=False), 10)
        return 0
    return AGAIN


def main() -> None:
    from rekindle.fleet.confined import confine

    confine()
    settings = codec.from_json(sys.stdin.buffer.read(), WorkerSettings, name="what this worker is told")
    code = asyncio.run(offer(settings))
    sys.stdout.flush()
    # Threads of Dask that wait for a job would keep the process for as long as the job takes.
    os._exit(code)


if __name__ == "__main__":
    main()
