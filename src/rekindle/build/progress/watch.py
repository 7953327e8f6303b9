"""Watches a build and says how far it is: a live view on a terminal, timestamped lines everywhere else.

Lines from Ninja say what is finished; its log says how long that took; the processes say what is running. A thread of
its own looks every few seconds, so that something is said also while Ninja is silent for long.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from rekindle.build.governor.record import Standing
from rekindle.build.progress import outputs
from rekindle.build.progress.outputs import RunningProgram, Watcher
from rekindle.build.progress.weights import Estimator, LogTail, TimeLeft, Weight, Weights, builds
from rekindle.core import console

if TYPE_CHECKING:
    import rich.console
    import rich.live

HEARTBEAT = 30.0
_LIVE = 1.0
_AWAIT = 2.5
"""Seconds after a finished line in which Ninja's log must have named the output's times."""


class CompileStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a compile step is about to do."""

    ninja: str
    build: Path
    source: Path
    targets: tuple[str, ...]
    environ: dict[str, str]
    jobs: int | None
    name: str
    compiles: Path | None = None
    """The governor's record, in which the time at the gate does not count."""


class Progress:
    """`live` shows a view that redraws itself; without it a line every `every` seconds goes to `tell`.

    `listen` is told of every moment as well."""

    def __init__(
        self,
        tell: Callable[[str], None],
        *,
        live: Live | None = None,
        every: float = HEARTBEAT,
        listen: Callable[[Now], None] | None = None,
    ) -> None:
        self._tell = tell
        self._listen = listen
        self._live = live
        self._every = every
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._state: _State | None = None
        self.standing: Callable[[], Standing] | None = None
        """What the governor says, while there is one: which compiles run and which wait for memory."""

    def begin(self, step: str, number: int, of: int) -> None:
        with self._lock:
            self._state = _State(step=step, number=number, of=of)
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, name="rekindle-progress", daemon=True)
        self._thread.start()

    def compiling(self, what: CompileStep) -> None:
        """Before Ninja is started: what it will make, and how heavy that is."""
        described = outputs.described(what.build)
        listed = outputs.listed(what.ninja, what.build, what.targets, what.environ)
        names = [described.get(name, name) for name in listed]
        weights = Weights(builds(what.name)).of(names, _sizes(what.source, names))
        with self._lock:
            if self._state:
                self._state.compiles(what, weights, described)

    def started(self, pid: int) -> None:
        with self._lock:
            if self._state:
                self._state.watcher = Watcher(pid)

    def line(self, text: str) -> None:
        with self._lock:
            if self._state:
                self._state.heard(text)

    def end(self) -> None:
        """The step is over, well or not. The view is gone when this returns."""
        self._stop.set()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)
        self._thread = None
        with self._lock:
            self._state = None
            if self._live:
                self._live.close()

    def _watch(self) -> None:
        said = time.monotonic()
        while not self._stop.wait(_LIVE):
            with self._lock:
                state = self._state
            if state is None:
                return
            # A view that cannot be drawn, a process that is gone between two looks: no reason to disturb a build.
            with contextlib.suppress(Exception):
                due = time.monotonic() - said >= self._every
                now = self._now(state) if self._live or self._listen or due else None
                if now is not None and self._listen:
                    self._listen(now)
                if now is not None and self._live:
                    self._live.show(now)
                elif now is not None and due:
                    said = time.monotonic()
                    for line in log_lines(now, time.strftime("%H:%M:%S")):
                        self._tell(line)
                elif now is None:
                    with self._lock:
                        state.take_in()

    def _now(self, state: _State) -> Now:
        watcher = state.watcher
        jobs = watcher.look() if watcher else []
        asked = self.standing
        standing = asked() if asked else None
        with self._lock:
            state.take_in()
            return state.now(_governed(jobs, standing) if standing else jobs, standing)


class _State:
    """One step, as far as it is known. Only touched with the lock held."""

    def __init__(self, *, step: str, number: int, of: int) -> None:
        self.step, self.number, self.of = step, number, of
        self.begun = time.monotonic()
        self.watcher: Watcher | None = None
        self.last_line = ""
        self.heard_at = self.begun
        self.done = self.total = 0
        self.listed = 0
        self.left: set[str] = set()
        self.estimator: Estimator | None = None
        self.what: CompileStep | None = None
        self.described: Mapping[str, str] = {}
        self._log: LogTail | None = None
        self._arrived: dict[str, float] = {}

    def compiles(self, what: CompileStep, weights: Mapping[str, Weight], described: Mapping[str, str]) -> None:
        self.what = what
        self.described = described
        self.estimator = Estimator(weights, jobs=what.jobs, begun=time.monotonic())
        self.left = set(weights)
        self.listed = len(weights)
        self._log = LogTail(what.build / ".ninja_log", what.compiles)

    def heard(self, text: str) -> None:
        self.heard_at = time.monotonic()
        found = outputs.read_line(text)
        if found is None:
            self.last_line = text
            return
        self._count(found.done, found.total)
        self._arrived[self.described.get(found.name, found.name)] = self.heard_at
        self.last_line = found.name

    def _count(self, done: int, total: int) -> None:
        """A step may run Ninja more than once: a total that was shown does not shrink, and what is done stays done.

        A few lines out of many are Ninja renewing its own rules, or the rest after a failure.
        """
        if total * 2 < max(self.total, self.listed):
            return
        missing = total - done
        self.total = max(self.total, total)
        self.done = max(self.done, self.total - missing)

    def take_in(self) -> None:
        """What has finished, with the time that Ninja's log gives for it."""
        if self.estimator is None or self._log is None:
            self._arrived.clear()
            return
        times = self._log.read()
        now = time.monotonic()
        for name, at in list(self._arrived.items()):
            if name in times or now - at > _AWAIT:
                self.estimator.finished(name, times.get(name), at)
                self.left.discard(name)
                del self._arrived[name]

    def now(self, jobs: Sequence[RunningProgram], standing: Standing | None) -> Now:
        import psutil

        estimate: TimeLeft | None = None
        if self.estimator is not None and (self.listed or self.done):
            ages = {job.output: job.seconds for job in jobs if job.output}
            left = self.total - self.done if self.total * 2 >= self.listed else len(self.left)
            unlisted = max(0, left - len(self.left))
            # When most of the rest is not on the list, nothing is known of it: no time is better than a wrong one.
            if unlisted <= len(self.left):
                estimate = self.estimator.remaining(
                    time.monotonic(), ages, unlisted=unlisted, fewer=max(0, len(self.left) - left)
                )
        place = self.what.build if self.what else None
        return Now(
            step=self.step,
            number=self.number,
            of=self.of,
            seconds=time.monotonic() - self.begun,
            done=self.done,
            total=self.total,
            running=tuple(jobs),
            estimate=estimate,
            jobs=standing.jobs if standing else None,
            waiting=standing.short if standing else 0,
            memory_free=(standing.available if standing else None) or int(psutil.virtual_memory().available),
            disk_free=shutil.disk_usage(place).free if place else None,
            last_line=self.last_line,
        )


def _governed(jobs: Sequence[RunningProgram], standing: Standing) -> list[RunningProgram]:
    """The jobs without those that only wait at the gate; the others as old as their compilers are."""
    waiting = {shown.object for shown in standing.waiting}
    shown = {each.object: each for each in standing.running}
    found = []
    for job in jobs:
        known = shown.get(job.output or "")
        if known:
            job = msgspec.structs.replace(
                job, seconds=max(0.0, time.time() - known.since), memory=known.held or job.memory
            )
        if job.output not in waiting:
            found.append(job)
    return found


def _sizes(source: Path, names: Sequence[str]) -> dict[str, int]:
    """Bytes of the sources, where an output's name tells where its source lies."""
    found = {}
    for name in names:
        output = outputs.read(name)
        if output.kind in ("cxx", "c", "cuda"):
            with contextlib.suppress(OSError):
                found[name] = (source / output.source).stat().st_size
    return found


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
    for job in long[:3]:
        age = ", ".join(filter(None, (console.duration(job.seconds), _memory(job))))
        lines.append(f"{'':<10}still {_doing(job)} {_name(job, 44)}, {age}")
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


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."[: max(0, min(3, width))]
