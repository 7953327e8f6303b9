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

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.CreateSemaphoreW.restype = wintypes.HANDLE
    _kernel32.CreateSemaphoreW.argtypes = [wintypes.LPVOID, wintypes.LONG, wintypes.LONG, wintypes.LPCWSTR]
    _kernel32.WaitForSingleObject.argtypes = [wintypes.HANDLE, wintypes.DWORD]
    _kernel32.ReleaseSemaphore.argtypes = [wintypes.HANDLE, wintypes.LONG, wintypes.LPVOID]
    _kernel32.CloseHandle.argtypes = [wintypes.HANDLE]
    _EXISTS_ALREADY = 183

    class Semaphore:
        """A new one of this name, holding `count` of at most `most`."""

        def __init__(self, name: str, count: int, most: int) -> None:
            ctypes.set_last_error(0)
            self._handle = _kernel32.CreateSemaphoreW(None, count, most, name)
            problem = ctypes.get_last_error()
            if not self._handle:
                raise ctypes.WinError(problem)
            if problem == _EXISTS_ALREADY:
                self.close()
                raise ctypes.WinError(problem)

        def take(self) -> bool:
            """One less, if there is one now."""
            return bool(_kernel32.WaitForSingleObject(self._handle, 0) == 0)

        def give(self) -> None:
            if not _kernel32.ReleaseSemaphore(self._handle, 1, None):
                raise ctypes.WinError(ctypes.get_last_error())

        def close(self) -> None:
            if self._handle:
                _kernel32.CloseHandle(self._handle)
                self._handle = None


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
