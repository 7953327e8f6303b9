"""One writer per folder. A second run is refused with the first one's number; a dead one's lock is no lock."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rekindle.build.run.folders import Folders
from rekindle.core import codec, files
from rekindle.core.errors import BadInput, Locked


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    since: str


@contextlib.contextmanager
def held(folders: Folders) -> Iterator[None]:
    """Hold the folder. The system lets go of the lock when the process ends, however it ends."""
    from filelock import FileLock, Timeout

    folders.root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folders.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise _refused(folders.running, folders.root) from None
    try:
        now = LockHolder(pid=os.getpid(), since=time.strftime("%Y-%m-%d %H:%M:%S"))
        files.write_text(folders.running, codec.to_json(now) + "\n")
        yield
    finally:
        with contextlib.suppress(OSError):
            folders.running.unlink(missing_ok=True)
        lock.release()


def _refused(path: Path, root: Path) -> Locked:
    who = "another run"
    with contextlib.suppress(OSError, BadInput):
        first = codec.from_json(path.read_bytes(), LockHolder)
        who = f"another run (process {first.pid}, since {first.since})"
    message = f"{who} is building in `{root}`"
    return Locked(message, hint="wait for it, or end it; two builds in one folder would corrupt each other")
