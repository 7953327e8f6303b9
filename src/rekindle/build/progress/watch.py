"""Watches a build and says how far it is: a live view on a terminal, timestamped lines everywhere else.

Lines from Ninja say what is finished; its log says how long that took; the processes say what is running. A thread of
its own looks every few seconds, so that something is said also while Ninja is silent for long.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.build.governor.record import Standing
from rekindle.build.progress import outputs, view
from rekindle.build.progress.eta import Estimator, TimeLeft
from rekindle.build.progress.outputs import RunningProgram, Watcher
from rekindle.build.progress.view import Now
from rekindle.build.progress.weights import LogTail, Weight, Weights, builds

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
        live: view.Live | None = None,
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
                    for line in view.log_lines(now, time.strftime("%H:%M:%S")):
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
