"""What the programs that a gate has started hold in memory at this moment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

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
