"""Job tokens for Ninja: one number for the whole build, which can be made larger and smaller while it runs.

Ninja (from 1.13.2) and make take a token before each job but the first. On Linux the tokens are bytes in a named pipe,
on Windows the count of a named semaphore. An explicit `-j`, `MAX_JOBS` or `CMAKE_BUILD_PARALLEL_LEVEL` makes Ninja look
away from all this, so they must be kept out of the build's environment.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from types import TracebackType

from rekindle.core import files

DEAF = ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "MAKEFLAGS", "NINJAFLAGS")
"""Variables that would make Ninja ignore the tokens."""


class JobServer:
    """Holds the tokens for `jobs` jobs at once. `take` and `give` change how many the build may run."""

    def __init__(self, jobs: int, *, most: int | None = None) -> None:
        if jobs < 1:
            raise ValueError(f"a build needs at least one job, not {jobs}")
        self.jobs = jobs
        self._most = max(most or jobs, jobs)
        # One job needs no token: the build that starts has it already.
        if sys.platform == "win32":
            from rekindle.build.governor.semaphore import Semaphore

            self.name = f"rekindle-{os.getpid()}-{secrets.token_hex(6)}"
            self._semaphore = Semaphore(self.name, jobs - 1, max(self._most - 1, 1))
        else:
            self._folder = files.scratch_folder("jobs")
            self.name = f"fifo:{self._folder / 'tokens'}"
            os.mkfifo(self.name.removeprefix("fifo:"), 0o600)
            self._pipe = os.open(self.name.removeprefix("fifo:"), os.O_RDWR | os.O_NONBLOCK)
            os.write(self._pipe, b"+" * (jobs - 1))

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """`environ` as Ninja needs it to listen. Made new; nothing is changed in place."""
        kept = {name: value for name, value in environ.items() if name.upper() not in DEAF}
        return {**kept, "MAKEFLAGS": f" -j{self._most} --jobserver-auth={self.name}"}

    def take(self, *, timeout: float = 0.0) -> bool:
        """One token less for the build. False when all are in use and none came back in time."""
        limit = time.monotonic() + timeout
        while not self._try_take():
            if time.monotonic() >= limit:
                return False
            time.sleep(0.02)
        self.jobs -= 1
        return True

    def give(self) -> None:
        """One token more, up to the most this was made for."""
        if self.jobs >= self._most:
            raise ValueError(f"there are {self.jobs} of {self._most} jobs already")
        if sys.platform == "win32":
            self._semaphore.give()
        else:
            os.write(self._pipe, b"+")
        self.jobs += 1

    def close(self) -> None:
        if sys.platform == "win32":
            self._semaphore.close()
        else:
            with contextlib.suppress(OSError):
                os.close(self._pipe)
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> JobServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _try_take(self) -> bool:
        taken = False
        if sys.platform == "win32":
            taken = self._semaphore.take()
        else:
            with contextlib.suppress(BlockingIOError):
                taken = bool(os.read(self._pipe, 1))
        return taken
