"""Takes out what must not travel: user and host names, serial numbers, tokens, addresses.

Applied to snapshots, paste blocks and logs before they leave the machine. What is replaced keeps its shape
(`C:\\Users\\<user>\\source`; `<the user>` for a name with a space, `<üser>` for one beyond ASCII), because a path with
a space or an umlaut breaks builds, and whoever reads the snapshot must still see that it has one.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path

_TOKENS = re.compile(
    r"""(?x)
    (?P<scheme>[a-z][a-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@            # user:password@host
    | \b(?P<named>(?i:token|secret|password|passwd|api[_-]?key|access[_-]?key|auth)[\w-]*)
      (?P<sep>["']?\s*[=:]\s*["']?)(?P<value>[^\s"';&]{4,})
    | \b(?:gh[pousr]_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}|xox[abp]-[\w-]{10,}|AKIA[0-9A-Z]{16})\b
    | \bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b           # a card's UUID
    | (?P<serial>(?i:serial(?:\s+number)?|board\s+id)\s*[:=]\s*)(?P<number>[0-9A-Fx]{6,})
    | \b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63})+\b               # e-mail
    """
)
_HOMES = re.compile(
    r"(?i)((?:[a-z]:)?[\\/]+(?:users|home|documents and settings)[\\/]+)([^\\/\r\n\"'<>|:*?]+?)(?=[\\/\"'\r\n;]|$)"
)
_ORDINARY = frozenset({"public", "default", "all users", "root", "user", "admin", "administrator", "<user>"})


def redact(text: str, *, names: Iterable[str] | None = None) -> str:
    """`text` without names and secrets. `names` are this machine's user and host names unless given."""
    text = _TOKENS.sub(_mask, text)
    text = _HOMES.sub(lambda m: m.group(1) + (m.group(2) if m.group(2).lower() in _ORDINARY else _nobody(m[2])), text)
    for name in sorted(local_names() if names is None else names, key=len, reverse=True):
        if len(name) > 2 and name.lower() not in _ORDINARY:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<name>", text)
    return text


def local_names() -> set[str]:
    """The names by which this machine and its user are known."""
    names = {socket.gethostname(), socket.gethostname().split(".")[0]}
    with contextlib.suppress(RuntimeError):  # a user without an entry in the system has no home
        names.add(Path.home().name)
    names |= {os.environ.get(key, "") for key in ("USERNAME", "USER", "COMPUTERNAME", "HOSTNAME", "USERDOMAIN")}
    with contextlib.suppress(OSError, KeyError, ImportError):
        names.add(getpass.getuser())
    return {name for name in names if name}


def _nobody(name: str) -> str:
    """Nobody's name, of the same shape as `name`."""
    return f"<{'the ' if ' ' in name else ''}{'user' if name.isascii() else 'üser'}>"


def _mask(match: re.Match[str]) -> str:
    if match.group("scheme"):
        return f"{match.group('scheme')}<secret>@"
    if match.group("named"):
        return f"{match.group('named')}{match.group('sep')}<secret>"
    if match.group("serial"):
        return f"{match.group('serial')}<serial>"
    return "<uuid>" if match.group().startswith("GPU-") else "<secret>"
