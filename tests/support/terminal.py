"""A real terminal for a program: what it writes there, with what is typed, and the window resized under it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Terminal:
    """Runs `args` with a terminal as stdin, stdout and stderr; `text` is what has been written so far, unadorned."""

    def __init__(self, args: Sequence[str], *, env: Mapping[str, str], cwd: Path, columns: int = 80) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns)
        self.raw = ""
        self.process = subprocess.Popen(
            args, stdin=slave, stdout=slave, stderr=slave, env=dict(env), cwd=cwd, start_new_session=True
        )
        os.close(slave)

    @property
    def text(self) -> str:
        return _ESCAPE.sub("", self.raw)

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, seen: Callable[[str], bool], *, timeout: float = 120.0) -> bool:
        """Read until `seen(text)` holds or the program ends."""
        limit = time.monotonic() + timeout
        while time.monotonic() < limit and not seen(self.text):
            ready, _, _ = select.select([self._master], [], [], 0.2)
            try:
                data = os.read(self._master, 65536) if ready else b""
            except OSError:
                break
            if ready and not data:
                break
            self.raw += data.decode("utf-8", "replace")
        return seen(self.text)

    def ended(self, *, timeout: float = 120.0) -> int:
        self.until(lambda text: False, timeout=timeout)
        return self.process.wait(timeout=10)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
