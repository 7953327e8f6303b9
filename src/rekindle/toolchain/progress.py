"""A line every few seconds of something that takes minutes, so that nobody takes silence for the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rekindle.core.console import plural
from rekindle.core.disk import size_of

PULSE = 5.0


Line = Callable[[float], str]
"""What to say after so many seconds."""


class Pulse:
    """Says the line of the moment, again and again, while it is entered."""

    def __init__(self, line: Line, say: Callable[[str], None]) -> None:
        self._line, self._say = line, say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> None:
        self._begun = time.monotonic()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._stop.wait(PULSE):
            self._say(self._line(time.monotonic() - self._begun))


def fetching(folder: Path, total: int, kept: int = 0) -> Line:
    """How much of the total there is, and how fast it comes; `kept` bytes of it were there from an earlier run."""
    had = size_of(folder)

    def line(passed: float) -> str:
        come = max(size_of(folder) - had, 0)
        speed = come / passed
        left = f", {max(total - kept - come, 0) / speed:,.0f} s left" if speed > 1e5 else ""
        return f"fetched {(kept + come) / 1e6:,.0f} of {total / 1e6:,.0f} MB, {speed / 1e6:,.1f} MB/s{left}"

    return line


def unpacking(sizes: Sequence[int], jobs: Collection[Future[Any]]) -> Line:
    """How many archives are unpacked, one for each job, and how much came out; `sizes` grows meanwhile."""

    def line(_: float) -> str:
        done = sum(job.done() for job in jobs)
        return f"unpacked {done} of {plural(len(jobs), 'archive')}, {sum(tuple(sizes)) / 1e6:,.0f} MB"

    return line
