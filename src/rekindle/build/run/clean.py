"""Empties a build's folder, also where files are read-only or held by another program, and says who holds them."""

from __future__ import annotations

import contextlib
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from rekindle.build.run.folders import Folders
from rekindle.core.errors import Locked

_TRIES = 5


def clean(folders: Folders, *, keep: Sequence[Path] = ()) -> int:
    """Remove everything but `keep`; how many went. What cannot be removed is an error that says why."""
    gone = 0
    for entry in sorted(folders.root.iterdir()):
        if entry not in keep:
            gone += remove(entry)
    return gone


def remove(path: Path) -> int:
    gone = 0
    if path.is_dir() and not path.is_symlink():
        _writable(path)
        for entry in list(path.iterdir()):
            gone += remove(entry)
    for attempt in range(_TRIES):
        try:
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
            return gone + 1
        except OSError:
            _writable(path)
            _writable(path.parent)
            # A scanner or an indexer lets go of a file soon; a program that uses it does not.
            time.sleep(0.1 * (attempt + 1) if attempt else 0)
    who = holders(path)
    message = f"`{path}` cannot be removed" + (f": it is held by {', '.join(who)}" if who else "")
    raise Locked(message, hint="end that program and rerun the command" if who else "check who may write there")


def holders(path: Path) -> list[str]:
    """The programs that have this file open, as far as they can be seen."""
    import psutil

    found = []
    wanted = str(path)
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error, OSError):
            opened = [each.path for each in process.open_files()]
            if wanted in opened or process.cwd() == wanted:
                found.append(f"{process.name()} ({process.pid})")
    return found


def _writable(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.chmod(stat.S_IRWXU if path.is_dir() else stat.S_IRUSR | stat.S_IWUSR)
