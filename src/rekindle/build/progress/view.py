"""How far a build is, in words: a few lines that redraw themselves on a terminal, or one line for a log. ASCII only."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

import msgspec

from rekindle.build.progress import outputs
from rekindle.build.progress.eta import TimeLeft
from rekindle.build.progress.outputs import RunningProgram
from rekindle.core import console

if TYPE_CHECKING:
    import rich.console
    import rich.live

_LONG = 60.0
"""A file that has been compiling for this many seconds is named in the log."""
_ROUGH = 0.5
"""With less of the work timed before than this share, the time left is a rough one."""
_EARLY = 0.1
"""Before this share of the work a range is told and no time."""
_SHOWN = 8


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a step. `jobs`: how many may run now; `waiting`: how many wait for memory."""

    step: str
    number: int
    of: int
    seconds: float
    done: int = 0
    total: int = 0
    running: tuple[RunningProgram, ...] = ()
    estimate: TimeLeft | None = None
    jobs: int | None = None
    waiting: int = 0
    memory_free: int | None = None
    disk_free: int | None = None
    last_line: str = ""


def log_lines(now: Now, clock: str) -> list[str]:
    """The heartbeat: where it is, and what has been taking long."""
    parts = [clock, now.step]
    if now.total:
        parts.append(f"{now.done}/{now.total}")
    parts.append(_left(now) or f"for {console.duration(now.seconds)}")
    parts += [", ".join(_running(now))] if now.running or now.waiting else []
    parts += _free(now) if now.total else []
    lines = ["  ".join(parts)]
    long = [job for job in now.running if job.seconds >= _LONG]
    lines += [f"{'':<10}still {_doing(job)} {_name(job, 44)}, {_age(job)}" for job in long[:3]]
    if not now.total and now.last_line:
        lines.append(f"{'':<10}{_cut(console.clean(now.last_line), 69)}")
    return lines


def live_lines(now: Now, width: int, height: int = 24) -> list[str]:
    """The view, cut to the terminal."""
    width = max(width, 20)
    head = f"{now.step}, step {now.number} of {now.of}"
    lines = []
    if now.total:
        lines.append(_spread(head, f"{now.done}/{now.total} files", width))
        share = now.estimate.share if now.estimate else now.done / now.total
        lines.append(_bar(share, width))
        lines.append(_spread(f"{console.duration(now.seconds)} gone", _left(now) or "", width))
    else:
        lines.append(_spread(head, f"{console.duration(now.seconds)} gone", width))
        if now.last_line:
            lines.append("  " + _cut(console.clean(now.last_line), width - 2))
    lines.append(_cut(", ".join([*_running(now), *_free(now)]), width))
    room = max(0, min(_SHOWN, height - len(lines) - 2))
    for job in now.running[:room]:
        lead = f"  {console.duration(job.seconds):>10}  {_memory(job):>8}  "
        lines.append(_cut(lead + _name(job, max(8, width - len(lead))), width))
    if len(now.running) > room:
        lines.append(_cut(f"  and {len(now.running) - room} more", width))
    return lines


class Live:
    """The lines on a terminal, redrawn in place; what others write appears above them."""

    def __init__(self, stream: TextIO) -> None:
        import rich.console
        import rich.live

        self._console = rich.console.Console(file=stream, highlight=False, markup=False, soft_wrap=False)
        self._live: rich.live.Live | None = None

    def show(self, now: Now) -> None:
        import rich.live
        from rich.text import Text

        # Asked anew each time: a terminal may be resized while a build runs.
        size = self._console.size
        text = Text("\n".join(live_lines(now, size.width - 1, size.height)), no_wrap=True, overflow="crop")
        if self._live is None:
            self._live = rich.live.Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(text, refresh=True)
        console.stirred()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def terminal(stream: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> Live | None:
    """A live view where there is a terminal that can redraw; else None."""
    stream = stream or sys.stderr
    if console.silent():
        return None
    try:
        capable = stream.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")
    except ValueError:
        return None
    return Live(stream) if capable and find_spec("rich") else None


def _running(now: Now) -> list[str]:
    found = []
    if now.running:
        # Ninja also runs what is no compile, such as generators, beside those that are counted.
        within = now.jobs is not None and len(now.running) <= now.jobs
        found.append(f"{len(now.running)} of {now.jobs} running" if within else f"{len(now.running)} running")
    if now.waiting:
        found.append(f"{now.waiting} waiting for memory")
    return found


def _left(now: Now) -> str | None:
    estimate = now.estimate
    if estimate is None:
        return None
    if estimate.share < _EARLY:
        # So far other builds speak, at another machine's speed.
        least, most = (console.duration(_rounded(estimate.seconds * each)) for each in (0.5, 2))
        return f"{least} to {most} left"
    return f"{'about' if estimate.known >= _ROUGH else 'roughly'} {console.duration(_rounded(estimate.seconds))} left"


def _rounded(seconds: float) -> float:
    step = 5 if seconds < 90 else 60
    return max(step, round(seconds / step) * step)


def _spread(left: str, right: str, width: int) -> str:
    gap = width - len(left) - len(right)
    return left + " " * gap + right if gap >= 2 else _cut(f"{left}  {right}", width)


def _bar(share: float, width: int) -> str:
    inner = max(width - 9, 5)
    filled = round(min(max(share, 0.0), 1.0) * inner)
    return f"[{'#' * filled}{'.' * (inner - filled)}] {min(share, 1.0):5.0%}"


def _memory(job: RunningProgram) -> str:
    return console.memory(job.memory) if job.memory is not None else ""


def _free(now: Now) -> list[str]:
    found = [f"{console.memory(now.memory_free)} memory"] if now.memory_free is not None else []
    found += [f"{console.memory(now.disk_free)} disk"] if now.disk_free is not None else []
    return [" and ".join(found) + " free"] if found else []


def _doing(job: RunningProgram) -> str:
    if job.output is None:
        return "running"
    return "linking" if outputs.read(job.output).kind == "link" else "compiling"


def _name(job: RunningProgram, room: int) -> str:
    name = console.clean(outputs.read(job.output).source if job.output else job.program or "a program")
    return name if len(name) <= room else "..." + name[-(room - 3) :]


def _age(job: RunningProgram) -> str:
    return ", ".join(filter(None, (console.duration(job.seconds), _memory(job))))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."[: max(0, min(3, width))]
