"""Job tokens for Ninja; and where the gates connect to, who is at the other end, and what it holds in memory.

Ninja (from 1.13.2) and make take a token before each job but the first. On Linux the tokens are bytes in a named pipe,
on Windows the count of a named semaphore. An explicit `-j`, `MAX_JOBS` or `CMAKE_BUILD_PARALLEL_LEVEL` makes Ninja look
away from all this, so they must be kept out of the build's environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from rekindle.core import files


def listening() -> tuple[socket.socket, Path | None]:
    """Linux: a socket in a folder that only this user can enter. Windows: loopback, and the gate knows a secret."""
    folder: Path | None = None
    if sys.platform == "win32":
        made = socket.create_server(("127.0.0.1", 0), backlog=128)
    else:
        folder = files.scratch_folder("gate")
        if len(os.fsencode(folder)) > 90:
            folder.rmdir()
            folder = files.scratch_folder("gate", Path("/tmp"))
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(str(folder / "gate"))
        (folder / "gate").chmod(0o600)
        made.listen(128)
    made.setblocking(False)
    return made, folder


def peer_of(connection: socket.socket) -> tuple[int, int] | None:
    """(process, user) at the other end, by the kernel's word; None where it gives none."""
    option = getattr(socket, "SO_PEERCRED", None)
    family = getattr(socket, "AF_UNIX", None)
    if option is None or family is None or connection.family != family:
        return None
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return pid, uid


def own_user() -> int:
    ask: Callable[[], int] = getattr(os, "geteuid", int)
    return ask()


def plain_number(text: str) -> int | None:
    """A number that a gate would send: plain digits, and not too many."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,15}", text) else None


if sys.platform == "win32":
    _PAGE = 4096
else:
    _PAGE = os.sysconf("SC_PAGE_SIZE")


def held_by(pid: int) -> int | None:
    """Bytes of the gate and all below it. None: it has ended, or cannot be asked."""
    return _asked(pid) if sys.platform == "win32" else _read(pid)


def largest_below(pid: int) -> int | None:
    """The process with the most memory below a gate: a driver's compiler, not the driver."""
    found = {below: _resident(below) or 0 for below in _tree(pid)[1:]}
    return max(found, key=lambda each: found[each]) if found else None


def any_below(pid: int) -> bool:
    """Whether the process has started another that lives."""
    return _has_children(pid) if sys.platform == "win32" else len(_tree(pid)) > 1


def _read(pid: int) -> int | None:
    sizes = [size for size in map(_resident, _tree(pid)) if size is not None]
    return sum(sizes) if sizes else None


def _tree(pid: int) -> list[int]:
    """The process and all below it, by the kernel's own list: cheap enough for ten times a second."""
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        try:
            left += map(int, Path(f"/proc/{one}/task/{one}/children").read_bytes().split())
        except OSError:
            continue
    return found


def _resident(pid: int) -> int | None:
    """Without the pages of files, which are shared and can be dropped: they count as free elsewhere too."""
    try:
        numbers = Path(f"/proc/{pid}/statm").read_bytes().split()
        return (int(numbers[1]) - int(numbers[2])) * _PAGE
    except (OSError, IndexError):
        return None


def _asked(pid: int) -> int | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))
    except psutil.Error:
        return None


def _has_children(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).children())
    except (psutil.Error, OverflowError):
        return False


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
