"""Which program a name means, and whether any may be started; apart from what starts them, which is slow to import."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import ntpath
import os
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path

_READING = contextvars.ContextVar("reading", default=False)


@contextlib.contextmanager
def reads_only() -> Iterator[None]:
    """Meanwhile nothing is started, whoever asks: for commands that promise to read only.

    A thread that is begun meanwhile must be given this context (`contextvars.copy_context`).
    """
    before = _READING.set(True)
    try:
        yield
    finally:
        _READING.reset(before)


def may_run() -> bool:
    return not _READING.get()


def which(name: str, path: str | None = None, *, windows: bool | None = None) -> str | None:
    """The program of that name along `path`, or along this process's own. The current folder is no place to look."""
    endings = os.environ.get("PATHEXT") or ".COM;.EXE;.BAT;.CMD"
    along = path_of(None) if path is None else path
    windows = os.name == "nt" if windows is None else windows
    hits = (Path(hit) for hit in places(name, along, windows=windows, endings=endings))
    return next((str(hit) for hit in hits if hit.is_file() and (windows or os.access(hit, os.X_OK))), None)


def found(name: str, env: Mapping[str, str] | None) -> str:
    """The path of a bare name, along the PATH that the program will have."""
    path = which(name, path_of(env))
    if path is None and os.name == "nt":
        path = in_system(name)
    if path is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return path


def path_of(env: Mapping[str, str] | None) -> str:
    return next((value for name, value in (os.environ if env is None else env).items() if name.upper() == "PATH"), "")


def in_system(name: str) -> str:
    """Windows finds its own programs without PATH; nothing else may be left to it."""
    hit = which(name, ntpath.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32"), windows=True)
    if hit is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return hit


def places(name: str, path: str, *, windows: bool, endings: str = ".exe;.bat;.cmd") -> Iterator[str]:
    """Where a program of that name would be along a PATH of Windows or Linux, the one that wins first.

    An entry that is empty or relative means the folder one stands in, which may be anybody's: it is no place to look.
    """
    known = [ending.lower() for ending in endings.split(";") if ending] if windows else []
    tried = [""] if not known or name.lower().endswith(tuple(known)) else known
    for folder in absolute_entries(path, windows=windows):
        for ending in tried:
            yield (ntpath if windows else posixpath).join(folder, name + ending)


def absolute_entries(path: str, *, windows: bool) -> list[str]:
    """The folders of a PATH, each once, without those that depend on where one stands."""
    entries = [entry.strip().strip('"') for entry in path.split(";" if windows else ":")]
    return list(dict.fromkeys(entry for entry in entries if is_absolute(entry, windows=windows)))


def is_absolute(folder: str, *, windows: bool) -> bool:
    # On Linux also of a Windows PATH: under test it has ordinary folders.
    if folder.startswith("/") and (not windows or os.name != "nt"):
        return True
    drive, rest = ntpath.splitdrive(folder)
    return windows and bool(drive) and rest[:1] in ("\\", "/")
