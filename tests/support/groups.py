"""A control group with a limit on memory, of either version, for tests and benchmarks of what happens at the limit."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class MemoryGroup:
    """Made when the block begins, removed when it ends."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._v1 = folder.is_relative_to(_V1)

    def __enter__(self) -> MemoryGroup:
        self.folder.mkdir()
        limit, swap = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if self._v1 else ("memory.max", "")
        (self.folder / limit).write_text(str(self.limit), encoding="ascii")
        with contextlib.suppress(OSError):
            name, value = (swap, str(self.limit)) if self._v1 else ("memory.swap.max", "0")
            (self.folder / name).write_text(value, encoding="ascii")
        return self

    def __exit__(self, *_: object) -> None:
        for _ in range(100):
            try:
                self.folder.rmdir()
            except OSError:
                time.sleep(0.1)
            else:
                return

    def enter(self) -> None:
        """Put this process in; for a child, between fork and exec."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def killed(self) -> int:
        """How many processes the kernel has killed in it for memory."""
        name = "memory.oom_control" if self._v1 else "memory.events"
        lines = (self.folder / name).read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def memory_group(name: str, limit: int) -> MemoryGroup | str:
    """A group that can be entered, or why there is none."""
    root = _V1 if (_V1 / "memory.limit_in_bytes").exists() else _V2
    if root is _V2 and "memory" not in _words(_V2 / "cgroup.subtree_control"):
        return "no control group with a memory controller can be made here"
    group = MemoryGroup(root / f"{name}-{os.getpid()}", limit)
    try:
        with group:
            group.killed()
    except (OSError, StopIteration) as error:
        return f"no control group can be made here: {error}"
    return group


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []
