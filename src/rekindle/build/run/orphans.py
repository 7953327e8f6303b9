"""After Rekindle alone was killed: what it had started is found and ended before anything is resumed.

Windows has ended it already (the Job Object closes with its holder). On Linux the group lives on. A process is ours
when it is in the group that the journal names and carries this build's mark in its environment: a number that another
program has got since is never touched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from rekindle.build.configure.environment import MARK
from rekindle.build.run.journal import Journal
from rekindle.core.errors import Locked


def end_orphans(journal: Journal, mark: str, *, grace: float = 8.0) -> tuple[int, ...]:
    """End what an earlier run left running; the process numbers that were ended."""
    ended: list[int] = []
    for entry in journal.left_running():
        if entry.pid is None:
            continue
        members = _members(entry.pid, mark)
        if members:
            left = _end(entry.pid, mark, grace)
            if left:
                message = f"an earlier build left processes that cannot be ended: {', '.join(map(str, left))}"
                raise Locked(message, hint="end them, then rerun the command")
            ended += members
        journal.write("ended", step=entry.step, pid=entry.pid, note="found after a crash")
    if ended:
        journal.write("orphans", note=" ".join(map(str, ended)))
    return tuple(ended)


def _members(group: int, mark: str) -> list[int]:
    """The processes of the group that carry the mark."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if _group(process.pid) != group:
                continue
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process.pid)
    return found


def _group(pid: int) -> int:
    """Windows has no groups: there the process is its own."""
    own = pid
    if sys.platform != "win32":
        own = os.getpgid(pid)
    return own


def _end(group: int, mark: str, grace: float) -> list[int]:
    """Those that would not end. One that is dying shows no environment any more: it is watched by its number."""
    import psutil

    watched: set[int] = set()
    for kind in ("terminate", "kill"):
        watched |= set(_members(group, mark))
        if sys.platform == "win32":
            for pid in _members(group, mark):
                with contextlib.suppress(psutil.Error):
                    getattr(psutil.Process(pid), kind)()
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGTERM if kind == "terminate" else signal.SIGKILL)
        limit = time.monotonic() + grace
        while time.monotonic() < limit:
            watched |= set(_members(group, mark))
            watched = {pid for pid in watched if _alive(pid)}
            if not watched:
                return []
            time.sleep(0.05)
    return sorted(watched)


def _alive(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False
