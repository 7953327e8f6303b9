"""The check of a finished wheel on a card: on whichever machine has one, not on the one that happened to build it.

A wheel that was built where there is no card of its job is on the shelf with its GPU checks UNVERIFIED. A worker that
announces such a card gets the wheel and verifies it; where none does, it is said by which machine it could be done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core.command import rekindle
from rekindle.core.findings import State
from rekindle.fleet import shelved
from rekindle.fleet.announcement import Announcement
from rekindle.fleet.job import FleetJob
from rekindle.fleet.journal import FleetEvent, FleetJournal, checks_of, event
from rekindle.wheels.shelf.entry import ShelvedWheel

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


def outcome(said: FleetEvent | None) -> CheckOutcome | None:
    """As the journal has it; None while nobody has tried."""
    if said is None or said.event == "check":
        return None
    state = State(said.step) if said.event == "checked" and said.step else State.UNVERIFIED
    return CheckOutcome(state=state, worker=said.worker, reason=said.error or "")


def _either(cards: tuple[str, ...]) -> str:
    return f"a card of {' or '.join(cards)}"
