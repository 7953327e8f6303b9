"""Which jobs are on a shelf already: one small record per key beside its wheels.

A record counts while the wheel it names is on the shelf with the hash it had. So a job that is finished anywhere, by
whom and when ever, is not built again by anybody who has the shelf.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import ChecksFailed, RekindleError
from rekindle.core.untrusted import PlainFileName, Sha256
from rekindle.fleet.job import FleetJob, FleetLock
from rekindle.inputs.versions import read_python
from rekindle.wheels.shelf import shelf
from rekindle.wheels.shelf.entry import ShelvedWheel
from rekindle.wheels.shelf.shelf import Addition
from rekindle.wheels.tags import wheel_tags

FOLDER = "fleet"
_KEY = re.compile(r"[0-9a-f]{64}\.json\Z")


class ShelvedJob(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.shelved-job/1"
    key: Sha256
    wheel: PlainFileName
    sha256: Sha256
    lock: FleetLock
    minutes: float | None = None
    """How long it took, for the next estimate."""


def record(folder: Path, job: ShelvedJob) -> None:
    """Written last: the wheel is on the shelf before anybody reads that it is."""
    files.write_text(folder / FOLDER / f"{job.key}.json", codec.to_json(job) + "\n")


def jobs_on(folder: Path) -> dict[str, ShelvedJob]:
    """The finished jobs of a shelf by key. A record whose wheel is gone, or another, is as if it were not there."""
    place = folder / FOLDER
    if not place.is_dir():
        return {}
    wheels = {entry.file: entry.sha256 for entry in shelf.entries(folder) if entry.yanked is None}
    found = (_read(path) for path in sorted(place.iterdir()) if _KEY.match(path.name))
    return {job.key: job for job in found if job and wheels.get(job.wheel) == job.sha256}


def shelve(folder: Path, job: FleetJob, wheel: Path, seconds: float, **how: Any) -> ShelvedWheel:
    """A job's wheel onto the shelf, then its record: in place of an earlier one of its own, never of another job's.

    A wheel that not every Python of the job takes is refused: the plan promised another.
    """
    assert job.key is not None and job.lock is not None
    tags = tuple(map(str, wheel_tags(wheel)))
    pythons = dict.fromkeys(read_python(cell.python).version for cell in job.cells if cell.python)
    if without := [each for each in pythons if not shelf.runs_on(tags, each)]:
        message = f"`{wheel.name}` is not for Python {', '.join(without)}"
        raise ChecksFailed(message, hint="name the `backend` in the build file as the project is built")
    (entry,) = shelf.add(folder, [wheel], msgspec.structs.replace(addition(folder, job.key, job.lock), **how))
    minutes = round(seconds / 60, 2)
    record(folder, ShelvedJob(key=job.lock.key, wheel=entry.file, sha256=entry.sha256, lock=job.lock, minutes=minutes))
    return entry


def addition(folder: Path, key: str, lock: FleetLock) -> Addition:
    others = frozenset(job.wheel for job in jobs_on(folder).values() if job.key != key)
    return Addition(replace=True, kept=others, cuda=lock.cuda_version)


def _read(path: Path) -> ShelvedJob | None:
    try:
        found = codec.from_json(files.read_bytes(path, limit=1024 * 1024), ShelvedJob, name=f"`{path.name}`")
    except RekindleError:
        return None
    return found if found.key == path.name.removesuffix(".json") == found.lock.key else None
