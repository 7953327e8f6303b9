"""A fleet of this machine alone: a scheduler in this process, workers beside it, certificates for the hour."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from rekindle.core import codec, python
from rekindle.fleet import certs, scheduler
from rekindle.fleet.worker import WorkerSettings


@contextlib.asynccontextmanager
async def fleet(
    folder: Path, *, workers: int, slots: int, memory_gb: float, cache: str | None
) -> AsyncIterator[tuple[str, Path]]:
    """The address and the certificates of a scheduler with so many workers; all of it ends with the block.

    Loopback is shared with every user of the machine: here too nobody gets in without a certificate.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rekindle-fleet-", ignore_cleanup_errors=True) as secret:
        place = Path(secret) / "certs"
        certs.make(place, days=30)
        async with scheduler.started("127.0.0.1", 0, place) as running:
            started = [
                _start(
                    WorkerSettings(
                        scheduler=running.address,
                        folder=str(folder / f"worker-{number}"),
                        name=f"local-{number}",
                        slots=slots,
                        certs=str(place),
                        memory_gb=memory_gb / workers,
                        cache=cache,
                    )
                )
                for number in range(1, workers + 1)
            ]
            try:
                yield running.address, place
            finally:
                for process in started:
                    process.terminate()
                for process in started:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=30)


def _start(settings: WorkerSettings) -> subprocess.Popen[bytes]:
    words = python.own("rekindle.fleet.local", codec.to_json(settings, indent=0))
    return subprocess.Popen(words, stdin=subprocess.DEVNULL)


def main() -> None:
    from rekindle.fleet.confined import confine
    from rekindle.fleet.worker import serve

    confine()
    settings = codec.from_json(sys.argv[1], WorkerSettings, name="the settings")
    sys.exit(serve(settings, lambda text: print(f"{settings.name}: {text}", file=sys.stderr)))


if __name__ == "__main__":
    main()
