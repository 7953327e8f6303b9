"""Where the gates connect to, and who is at the other end."""

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
