"""The state folder of a run: its plan, its journal, its lock, what another terminal asks of it, and what a card said.

The journal is all that `status` and `resume` need: the client may be killed at any moment. A disk takes milliseconds to
promise that a line outlives a power cut; `settle` asks it for all lines since it was last asked.

A wheel that was built where there is no card of its job is on the shelf with its GPU checks UNVERIFIED. A worker that
announces such a card gets the wheel and verifies it; where none does, it is said by which machine it could be done.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.run.journal import stamp
from rekindle.core import codec, files, lines
from rekindle.core.command import rekindle
from rekindle.core.errors import BadInput, Locked, NotFound, UnknownName
from rekindle.core.findings import State
from rekindle.diagnose.answer import Diagnosis
from rekindle.fleet import shelved
from rekindle.fleet.announcement import Announcement
from rekindle.fleet.job import FleetJob, JobState
from rekindle.fleet.planning import Planned
from rekindle.wheels.shelf.store import ShelvedWheel

_LIMIT = 1024**3


class FleetState:
    """A folder beside the matrix; `matrix.toml` has `matrix.fleet`."""

    def __init__(self, root: Path) -> None:
        root = root.resolve()
        self.root = root
        self.plan = root / "plan.json"
        self.journal = root / "journal.jsonl"
        self.logs = root / "logs"
        self.asked = root / "cancel"
        self.arriving = root / "arriving"
        for place in (self.plan, self.journal, self.logs, self.asked, self.arriving):
            files.no_links(place, root)

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Two runs of one matrix would build everything twice."""
        hint = "`rekindle fleet status` shows it; end it first, or name another `--state`"
        return files.locked(self.root / "lock", Locked(f"another run holds `{self.root}`", hint=hint))

    @property
    def busy(self) -> bool:
        try:
            with self.held():
                return False
        except Locked:
            return True

    def keep(self, planned: Planned) -> None:
        files.write_text(self.plan, codec.to_json(planned, indent=0))

    def planned(self) -> Planned:
        if not self.plan.is_file():
            raise NotFound(f"there is no run in `{self.root}`", hint="`rekindle fleet run MATRIX` starts one")
        return codec.from_json(files.read_bytes(self.plan, limit=_LIMIT), Planned, name=f"`{self.plan}`")

    def ask_cancel(self, keys: tuple[str, ...]) -> None:
        """Read by the run within a second; a run that is not there reads it when it resumes."""
        self.asked.mkdir(parents=True, exist_ok=True)
        for key in keys:
            files.no_links(self.asked / key, self.root)
            (self.asked / key).touch()

    def cancelled(self) -> set[str]:
        return {path.name for path in self.asked.iterdir()} if self.asked.is_dir() else set()

    def answer_cancel(self, key: str) -> None:
        (self.asked / key).unlink(missing_ok=True)


def folder_of(matrix: Path) -> Path:
    if not matrix.name:
        raise BadInput(f"`{matrix}` is a folder, not a matrix", hint="name the file: `matrix.toml`")
    return matrix.with_suffix(".fleet")


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is: a state of the plan, or the last word of the journal on it."""

    key: str | None
    name: str
    state: str
    worker: str | None = None
    step: str | None = None
    wheel: str | None = None
    seconds: float | None = None
    reason: str = ""
    cause: str | None = None
    fix: str | None = None
    log: str | None = None
    attempts: int = 0
    deaths: int = 0
    check: CheckOutcome | None = None
    """Of its wheel on a card; None where it has no GPU code, or nobody has tried yet."""


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle fleet status`, `run`, `resume`, `retry` and `cancel`."""

    schema: str = "rekindle.fleet-status/1"
    folder: str
    shelf: str | None = None
    running: bool
    """A client is driving it now."""
    jobs: tuple[JobStatus, ...]
    counts: dict[str, int]
    seconds: float | None = None

    @property
    def complete(self) -> bool:
        return not set(self.counts) & {"waiting", "running"}

    @property
    def impossible(self) -> bool:
        """Nothing of it can be built."""
        return self.counts.keys() == {"impossible"}

    @property
    def well(self) -> bool:
        return set(self.counts) <= {"done", "not-needed", "impossible"}


def status_of(state: FleetState, *, running: bool | None = None, seconds: float | None = None) -> FleetStatus:
    planned = state.planned()
    events = read_events(state.journal)
    last = last_of(events)
    shelf = next((each.name for each in reversed(events) if each.event == "start"), None)
    checks = checks_of(events)
    own: dict[str, list[FleetEvent]] = {}
    for each in events:
        own.setdefault(each.key or "", []).append(each)
    jobs = tuple(
        msgspec.structs.replace(
            _status(job, last.get(job.key or ""), own.get(job.key or "", [])),
            check=check_outcome(checks.get(job.key or "")),
        )
        for job in planned.plan.jobs
    )
    busy = state.busy if running is None else running
    if not busy:
        # What a client that is gone had running is waiting to be taken up again.
        jobs = tuple(msgspec.structs.replace(job, state="waiting") if job.state == "running" else job for job in jobs)
    counts = dict(Counter(job.state for job in jobs))
    return FleetStatus(folder=str(state.root), shelf=shelf, running=busy, jobs=jobs, counts=counts, seconds=seconds)


def _status(job: FleetJob, last: FleetEvent | None, events: list[FleetEvent]) -> JobStatus:
    plain = JobStatus(key=job.key, name=job.name, state=job.state.value, wheel=job.wheel, reason=job.reason)
    if job.state is not JobState.BUILD or job.key is None:
        return plain
    if last is None:
        return msgspec.structs.replace(plain, state="waiting")
    state = last.event if last.event in FINAL else "running" if last.event in ("begin", "step") else "waiting"
    cause = last.diagnosis.causes[0] if last.diagnosis and last.diagnosis.causes else None
    return codec.like(
        JobStatus,
        last,
        name=job.name,
        state=state,
        reason=last.error or plain.reason,
        cause=cause.title if cause else None,
        fix=cause.fix.text if cause else None,
        attempts=sum(each.event == "begin" for each in events),
        deaths=deaths(events, job.key)[0],
    )


def keys_named(planned: Planned, words: tuple[str, ...]) -> tuple[str, ...]:
    """Jobs by name, or by the beginning of their key, or of what a workflow calls them."""
    found: list[str] = []
    for word in words:
        fitting = [
            job.key
            for job in planned.plan.jobs
            if job.key
            and job.lock
            and (job.name == word or (len(word) > 5 and (job.key.startswith(word) or job.lock.asked.startswith(word))))
        ]
        if not fitting:
            raise UnknownName(
                f"there is no job `{word[:120]}`",
                hint="`rekindle fleet plan MATRIX` names them; write a workflow anew when its matrix changes",
            )
        found += fitting
    return tuple(dict.fromkeys(found))


FINAL = ("done", "failed", "aside", "cancelled", "unplaced")
"""Events after which a job is not run again by itself."""
FAILED = FINAL[1:]
"""Those that `retry --failed` takes up again."""
CHECKS = ("check", "checked", "unchecked")
"""What becomes of a finished wheel on a card; the job stays done."""


_JOURNAL_HINT = "free some space, then `rekindle fleet resume`"


class FleetEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`begin`: a worker has it. `died`: that worker vanished with it. `lost`: the scheduler did. `aside`: given up.

    `check`: a worker with a card has its wheel. `checked`: `step` is what came of it. `unchecked`: `error` says why.
    """

    at: str
    event: str
    key: str | None = None
    name: str | None = None
    worker: str | None = None
    step: str | None = None
    wheel: str | None = None
    sha256: str | None = None
    seconds: float | None = None
    error: str | None = None
    diagnosis: Diagnosis | None = None
    log: str | None = None
    alone: bool = False
    """No other job ran on that worker."""
    cache_hits: int | None = None
    cache_misses: int | None = None


class FleetJournal:
    """One writer at a time: the caller holds the lock of the state folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = read_events(path)
        self.unsettled = False
        """A power cut could lose something that matters."""

    def write(self, event: FleetEvent) -> None:
        lines.append(self.path, event, hint=_JOURNAL_HINT, settled=False)
        self.events.append(event)
        # That a job was begun may be lost with a power cut: it is begun again.
        self.unsettled = self.unsettled or event.event != "begin"

    def settle(self) -> None:
        """Return when what was written is on the disk. May be called from another thread than `write`."""
        self.unsettled = False
        try:
            with self.path.open("ab") as stream:
                os.fsync(stream.fileno())
        except OSError as error:
            raise lines.not_written(self.path, error, _JOURNAL_HINT) from error


def event(kind: str, **values: Any) -> FleetEvent:
    return FleetEvent(at=stamp(), event=kind, **values)


def read_events(path: Path) -> list[FleetEvent]:
    return lines.read(path, FleetEvent)


def last_of(events: list[FleetEvent]) -> dict[str, FleetEvent]:
    """The last word on each job. `retry` wipes out what was final before it."""
    found: dict[str, FleetEvent] = {}
    for each in events:
        if each.key is not None and each.event not in CHECKS:
            found[each.key] = each
    return found


def checks_of(events: list[FleetEvent]) -> dict[str, FleetEvent]:
    """The last word on each job's check on a card, since its wheel was last built."""
    found: dict[str, FleetEvent] = {}
    for each in events:
        if each.key is not None and each.event in CHECKS:
            found[each.key] = each
        elif each.key is not None and each.event == "begin":
            found.pop(each.key, None)
    return found


def deaths(events: list[FleetEvent], key: str) -> tuple[int, int]:
    """How often a worker died with this job, and how often with this job alone, since it was last tried afresh."""
    all_ = alone = 0
    for each in events:
        if each.key != key:
            continue
        if each.event == "retry":
            all_ = alone = 0
        elif each.event == "died":
            all_, alone = all_ + 1, alone + each.alone
    return all_, alone


_JOINING = 10.0
_TRIES = 3
"""Of a check that was cut off, by a dead worker or a lost scheduler."""


class Checks:
    """Which finished jobs still need a card. What was checked is not checked again; what was not, may be now."""

    def __init__(self, jobs: dict[str, FleetJob], done: Iterable[str], journal: FleetJournal, shelf: Path) -> None:
        self.journal = journal
        self.shelf = shelf
        self.waiting: dict[str, FleetJob] = {}
        self._tries: dict[str, int] = {}
        self._idle_since: float | None = None
        said = checks_of(journal.events)
        for key in done:
            if jobs[key].cards and (key not in said or said[key].event != "checked"):
                self.waiting[key] = jobs[key]
        # Wheels of an earlier run: the machine with the card may be about to join.
        self._grace = _JOINING if self.waiting else 0.0

    def built(self, job: FleetJob, worker: str, entry: ShelvedWheel) -> None:
        """A wheel came in. Its builder may have had a card, and then its own report says so."""
        if not job.cards or job.key is None:
            return
        if entry.checked_on:
            self.done(job, worker, entry)
        else:
            self.waiting[job.key] = job

    def again(self, job: FleetJob) -> None:
        """It was cut off."""
        key = job.key or ""
        self._tries[key] = self._tries.get(key, 0) + 1
        if self._tries[key] < _TRIES:
            self.waiting[key] = job
        else:
            self.unchecked(job, f"it was cut off {_TRIES} times")

    def done(self, job: FleetJob, worker: str, entry: ShelvedWheel) -> None:
        if entry.checked_on:
            self._note("checked", job, worker=worker, step=entry.state.value, wheel=entry.file)
        else:
            self.unchecked(job, f"{worker} announces such a card, but nothing could be run on it", worker=worker)

    def failed(self, job: FleetJob, worker: str, error: str) -> None:
        self._note("checked", job, worker=worker, step=State.FAIL.value, error=error)

    def unchecked(self, job: FleetJob, why: str, *, worker: str | None = None) -> None:
        self.waiting.pop(job.key or "", None)
        self._note("unchecked", job, worker=worker, error=f"{why}; {self._elsewhere(job)}")

    def _note(self, word: str, job: FleetJob, **values: Any) -> None:
        self.journal.write(event(word, key=job.key, name=job.name, **values))

    def nobody(self, workers: Iterable[Announcement], patience: float) -> None:
        """Building is over: what nobody who is there can check stays UNVERIFIED."""
        there = tuple(workers)
        self._idle_since = self._idle_since or time.monotonic()
        if time.monotonic() - self._idle_since < (self._grace if there else patience):
            return
        for job in list(self.waiting.values()):
            if all(cannot_check(job, have) for have in there):
                self.unchecked(job, f"no machine of the fleet has {_either(job.cards)}")

    def _elsewhere(self, job: FleetJob) -> str:
        done = shelved.jobs_on(self.shelf).get(job.key or "")
        lock = job.lock
        where = f"{lock.system} {lock.machine}" if lock else "the same system"
        wheel = self.shelf / "wheels" / done.wheel if done else "the wheel"
        return f"run `{rekindle('verify', str(wheel))}` on {where} with {_either(job.cards)}"


def cannot_check(job: FleetJob, have: Announcement) -> tuple[str, ...]:
    """What this machine lacks to check the wheel of this job on a card; nothing: it can."""
    lock = job.lock
    assert lock is not None
    found: list[str] = []
    if (lock.system, lock.machine) != (have.system, have.machine):
        found.append(f"{lock.system} on {lock.machine}")
    if not set(job.cards) & set(have.cards):
        found.append(_either(job.cards))
    if lock.python and lock.python not in have.pythons:
        found.append(f"Python {lock.python}")
    return tuple(found)


class CheckOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a wheel on a card. UNVERIFIED: `reason` says why, and where it could be done."""

    state: State
    worker: str | None = None
    reason: str = ""


def check_outcome(said: FleetEvent | None) -> CheckOutcome | None:
    """As the journal has it; None while nobody has tried."""
    if said is None or said.event == "check":
        return None
    state = next((each for each in State if each == said.step and said.event == "checked"), State.UNVERIFIED)
    return CheckOutcome(state=state, worker=said.worker, reason=said.error or "")


def _either(cards: tuple[str, ...]) -> str:
    return f"a card of {' or '.join(cards)}"
