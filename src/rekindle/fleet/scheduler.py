"""`rekindle fleet scheduler`: Dask's scheduler with what builds need, and without what a fleet has no use for."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rekindle.core import files
from rekindle.fleet import certs

ALLOWED_FAILURES = 1000
"""Dask gives up a task after three dead workers, guilty or not. The fleet counts deaths itself, job by job."""


def settings() -> dict[str, Any]:
    """Dask's settings for builds, which run for hours in processes of their own."""
    return {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        "distributed.scheduler.worker-ttl": "60s",
        # A build is never given to another worker because that one is idle.
        "distributed.scheduler.work-stealing": False,
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.comm.timeouts.connect": "10s",
        "distributed.comm.timeouts.tcp": "60s",
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.admin.system-monitor.disk": False,
    }


def configured(folder: Path | None, role: str) -> Any:
    """Dask's `distributed`, set up for builds and with the certificates of this role."""
    safe = certs.settings(folder, role)
    distributed = certs.dask()
    import dask

    dask.config.set(settings() | safe)
    return distributed


def started(host: str, port: int, folder: Path | None) -> Any:
    """A scheduler to be awaited."""
    distributed = configured(folder, "scheduler")
    # Its web server shows pages to everybody who asks: it gets no pages, and only loopback.
    return distributed.Scheduler(host=host, port=port, dashboard=False, dashboard_address="127.0.0.1:0", protocol="tls")


def serve(host: str, port: int, folder: Path | None, *, address_file: Path | None, tell: Callable[[str], None]) -> None:
    """Until it is stopped."""
    asyncio.run(_serve(host, port, folder, address_file, tell))


async def _serve(
    host: str, port: int, folder: Path | None, address_file: Path | None, tell: Callable[[str], None]
) -> None:
    scheduler = started(host, port, folder)
    stop = stopper()
    async with scheduler:
        tell(f"scheduler at {scheduler.address}")
        if address_file is not None:
            files.write_text(address_file, scheduler.address + "\n")
        await stop.wait()


def stopper() -> asyncio.Event:
    """An event that SIGTERM and Ctrl-C set; where signals cannot be had, Ctrl-C ends the program itself."""
    stop = asyncio.Event()
    for name in ("SIGTERM", "SIGINT"):
        with contextlib.suppress(NotImplementedError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(getattr(signal, name), stop.set)
    return stop
