"""What a build is doing at this moment, read off its processes: which file, for how long, with how much memory."""

from __future__ import annotations

import ntpath
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from psutil import Process

_OUTPUT = re.compile(r"""(?:^|\s)(?:-o\s+|--output-file[= ]|[/-]Fo:?|[/-](?i:out):)["']?(?P<path>[^\s"';&|]+)""")
# MSVC's whole command line may be in a file, which Ninja names after the object.
_RESPONSE = re.compile(r"""@["']?(?P<path>\S+?)\.rsp\b""")


class RunningProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One job: the compiler with all that it has started. `memory` in bytes, None where it cannot be read."""

    output: str | None
    seconds: float
    memory: int | None
    program: str = ""


class Watcher:
    """Looks at everything below one process, again and again; a command line is read once."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._commands: dict[tuple[int, float], tuple[str | None, str]] = {}

    def look(self) -> list[RunningProgram]:
        """The jobs, oldest first: what Ninja has started, or this program when no Ninja runs."""
        import psutil

        try:
            root = psutil.Process(self.pid)
            below = root.children(recursive=True)
        except psutil.Error:
            return []
        children: dict[int, list[Process]] = defaultdict(list)
        names: dict[int, str] = {}
        for process in [root, *below]:
            try:
                names[process.pid] = process.name().lower()
                if process.pid != self.pid:
                    children[process.ppid()].append(process)
            except psutil.Error:
                continue
        ninjas = [pid for pid, name in names.items() if name.startswith("ninja")]
        # A Ninja that waits for another Ninja (an external project) has that as its job: the inner one's jobs count.
        inner = [pid for pid in ninjas if not any(other in _descent(children, pid) for other in ninjas)]
        heads = [process for pid in inner for process in children[pid]] if ninjas else []
        found = []
        for head in heads:
            job = self._job(head, children)
            if job is not None:
                found.append(job)
        return sorted(found, key=lambda job: -job.seconds)

    def _job(self, head: Process, children: Mapping[int, list[Process]]) -> RunningProgram | None:
        import psutil

        try:
            created = head.create_time()
            identity = (head.pid, created)
            if identity not in self._commands:
                self._commands[identity] = _described(head.cmdline())
        except psutil.Error:
            return None
        memory: int | None = None
        for process in [head, *_processes(children, head.pid)]:
            try:
                memory = (memory or 0) + int(process.memory_info().rss)
            except psutil.Error:
                continue
        output, program = self._commands[identity]
        return RunningProgram(output=output, program=program, seconds=max(0.0, time.time() - created), memory=memory)


def output_of(command: str) -> str | None:
    """What a compile or link command makes."""
    found = _OUTPUT.search(command) or _RESPONSE.search(command)
    return found["path"].replace("\\", "/") if found else None


def _described(words: Sequence[str]) -> tuple[str | None, str]:
    return output_of(" ".join(words)), ntpath.basename(words[0]) if words else ""


def _descent(children: Mapping[int, list[Process]], pid: int) -> set[int]:
    return {process.pid for process in _processes(children, pid)}


def _processes(children: Mapping[int, list[Process]], pid: int) -> list[Process]:
    found: list[Process] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += children.get(process.pid, ())
    return found
