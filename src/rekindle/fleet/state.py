"""The state folder of a run: its plan, its journal, its lock, and what another terminal asks of it."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import Locked, NotFound, UnknownName
from rekindle.fleet import journal as journals
from rekindle.fleet.checking import CheckOutcome, outcome
from rekindle.fleet.job import FleetJob, JobState
from rekindle.fleet.journal import FleetEvent
from rekindle.fleet.planning import Planned

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
            (self.asked / key).touch()

    def cancelled(self) -> set[str]:
        return {path.name for path in self.asked.iterdir()} if self.asked.is_dir() else set()

    def answer_cancel(self, key: str) -> None:
        (self.asked / key).unlink(missing_ok=True)


def folder_of(matrix: Path) -> Path:
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
    events = journals.read(state.journal)
    last = journals.last_of(events)
    shelf = next((each.name for each in reversed(events) if each.event == "start"), None)
    checks = journals.checks_of(events)
    jobs = tuple(
        msgspec.structs.replace(_status(job, last.get(job.key or ""), events), check=outcome(checks.get(job.key or "")))
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
    state = last.event if last.event in journals.FINAL else "running" if last.event in ("begin", "step") else "waiting"
    cause = last.diagnosis.causes[0] if last.diagnosis and last.diagnosis.causes else None
    return codec.like(
        JobStatus,
        last,
        name=job.name,
        state=state,
        reason=last.error or plain.reason,
        cause=cause.title if cause else None,
        fix=cause.fix.text if cause else None,
        attempts=sum(each.event == "begin" and each.key == job.key for each in events),
        deaths=journals.deaths(events, job.key)[0],
    )


def keys_named(planned: Planned, words: tuple[str, ...]) -> tuple[str, ...]:
    """Jobs by name, or by the beginning of their key."""
    found: list[str] = []
    for word in words:
        fitting = [
            job.key
            for job in planned.plan.jobs
            if job.key and (job.name == word or (len(word) > 5 and job.key.startswith(word)))
        ]
        if not fitting:
            raise UnknownName(f"there is no job `{word[:120]}`", hint="`rekindle fleet status` names them")
        found += fitting
    return tuple(dict.fromkeys(found))
