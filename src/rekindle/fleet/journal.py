"""What a run of a fleet has done, one JSON object per line, handed to the system before the next thing begins.

It is all that `status` and `resume` need: the client may be killed at any moment. A disk takes milliseconds to promise
that a line outlives a power cut; `settle` asks it for all lines since it was last asked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.run.journal import stamp
from rekindle.core import lines
from rekindle.diagnose.answer import Diagnosis

FINAL = ("done", "failed", "aside", "cancelled", "unplaced")
"""Events after which a job is not run again by itself."""
CHECKS = ("check", "checked", "unchecked")
"""What becomes of a finished wheel on a card; the job stays done."""


_HINT = "free some space, then `rekindle fleet resume`"


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
        self.events = read(path)
        self._unsettled = False

    def write(self, event: FleetEvent) -> None:
        lines.append(self.path, event, hint=_HINT, settled=False)
        self.events.append(event)
        # That a job was begun may be lost with a power cut: it is begun again.
        self._unsettled = self._unsettled or event.event != "begin"

    @property
    def unsettled(self) -> bool:
        """A power cut could lose something that matters."""
        return self._unsettled

    def settle(self) -> None:
        """Return when what was written is on the disk. May be called from another thread than `write`."""
        self._unsettled = False
        try:
            with self.path.open("ab") as stream:
                os.fsync(stream.fileno())
        except OSError as error:
            raise lines.not_written(self.path, error, _HINT) from error


def event(kind: str, **values: Any) -> FleetEvent:
    return FleetEvent(at=stamp(), event=kind, **values)


def read(path: Path) -> list[FleetEvent]:
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
