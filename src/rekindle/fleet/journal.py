"""What a run of a fleet has done, one JSON object per line, handed to the system before the next thing begins.

It is all that `status` and `resume` need: the client may be killed at any moment. A torn last line is cut off. A disk
takes milliseconds to promise that a line outlives a power cut; `settle` asks it for all lines since it was last asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.run.journal import stamp
from rekindle.core import codec, files
from rekindle.core.errors import BadInput, NotWritable
from rekindle.core.files import told
from rekindle.diagnose.answer import Diagnosis

FINAL = ("done", "failed", "aside", "cancelled", "unplaced")
"""Events after which a job is not run again by itself."""
CHECKS = ("check", "checked", "unchecked")
"""What becomes of a finished wheel on a card; the job stays done."""


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
        self._mend()

    def write(self, event: FleetEvent) -> None:
        line = codec.to_json(event, indent=0).encode("utf-8") + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as stream:
                stream.write(line)
        except OSError as error:
            raise self._unwritable(error) from error
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
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> NotWritable:
        message = f"cannot write the journal `{self.path}`: {told(error)}"
        return NotWritable(message, hint="free some space, then `rekindle fleet resume`")

    def _mend(self) -> None:
        if not self.path.exists():
            return
        files.cut_half_line(self.path)


def event(kind: str, **values: Any) -> FleetEvent:
    return FleetEvent(at=stamp(), event=kind, **values)


def read(path: Path) -> list[FleetEvent]:
    try:
        lines = files.read_bytes(path).split(b"\n") if path.exists() else []
    except FileNotFoundError:
        return []
    return list(_events(lines, path))


def _events(lines: list[bytes], path: Path) -> Iterator[FleetEvent]:
    for number, line in enumerate(lines, 1):
        if not line.strip(b"\0 \r"):
            continue
        try:
            yield codec.from_json(line, FleetEvent, name=f"`{path}`, line {number}")
        except BadInput:
            # Only the last line can be torn.
            if number < len(lines) - 1:
                raise


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
