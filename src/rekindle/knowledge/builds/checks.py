"""What the doctor's checks mean: why each matters, what to do, how we know, and what in the seeds it answers."""

from __future__ import annotations

import msgspec

from rekindle.core.errors import UnknownName, did_you_mean
from rekindle.knowledge.tables import NamedRow, Row, decided, rows


class Check(NamedRow, frozen=True, kw_only=True):
    title: str
    why: str
    fix: str
    build_only: bool = False
    """It matters to a build from source, and to nothing else."""
    seeds: tuple[str, ...]
    """What in the five documents that Rekindle began with this check answers: the document's number, then what."""


class Limits(Row, frozen=True, kw_only=True):
    """Sizes in GB as they are sold; lengths in characters."""

    memory_tolerance: float
    memory_least_gb: int
    memory_good_gb: int
    disk_least_gb: int
    disk_good_gb: int
    dev_drive_build: int
    """The first build of Windows that has Dev Drives."""
    root_length: int
    temp_length: int


class KnownBad(Row, frozen=True, kw_only=True):
    """Releases of a program that break a build."""

    program: str
    versions: tuple[str, ...]
    os: str | None = None
    why: str
    instead: str
    """What pip is asked for."""


class _Limits(msgspec.Struct, frozen=True):
    limits: Limits


checks = rows("checks.toml", "check", Check)
_known_bad = rows("checks.toml", "known_bad", KnownBad)


def check(name: str) -> Check:
    for row in checks():
        if row.id == name:
            return row
    near = did_you_mean(name, (row.id for row in checks()))
    raise UnknownName(f"there is no check `{name[:60]}`", hint=f"{near}`rekindle doctor --all` shows all ids")


def limits() -> Limits:
    return decided("checks", _Limits).limits


def known_bad(program: str, version: str, system: str) -> KnownBad | None:
    fitting = (row for row in _known_bad() if row.program == program and row.os in (None, system))
    return next((row for row in fitting if version in row.versions), None)
