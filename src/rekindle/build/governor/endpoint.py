"""Where the gates connect to, who is at the other end, and what the programs that it has started hold in memory."""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

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
