"""Which jobs are on a shelf already: one small record per key beside its wheels.

A record counts while the wheel it names is on the shelf with the hash it had. So a job that is finished anywhere, by
whom and when ever, is not built again by anybody who has the shelf.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import canonicalize_name, canonicalize_version

from rekindle.core import codec, files
from rekindle.core.errors import ChecksFailed, RekindleError
from rekindle.core.untrusted import PlainFileName, Sha256
from rekindle.fleet.job import FleetJob, FleetLock, JobKind
from rekindle.inputs.versions import read_python
from rekindle.knowledge.torch.companions import PROJECTS
from rekindle.model.wheel import WheelIdentity
from rekindle.wheels.shelf import shelf, store
from rekindle.wheels.shelf.shelf import Addition
from rekindle.wheels.shelf.store import ShelvedWheel

FOLDER = "fleet"


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


def jobs_on(folder: Path, published: Collection[str] = ()) -> dict[str, ShelvedJob]:
    """The finished jobs of a shelf by key. A record whose wheel is gone, or another, is as if it were not there: unless
    it is among those of a site of ours, by its hash."""
    place = folder / FOLDER
    if not place.is_dir():
        return {}
    every = (entry for entry in shelf.entries(folder) if entry.yanked is None)
    wheels = {each.file: each.sha256 for each in every if each.sha256 in published or store.there(folder, each)}
    found = (_read(path) for path in sorted(place.glob("*.json")))
    return {job.key: job for job in found if job and wheels.get(job.wheel) == job.sha256}


def shelve(folder: Path, job: FleetJob, wheel: Path, seconds: float, **how: Any) -> ShelvedWheel:
    """A job's wheel onto the shelf, then its record: in place of an earlier one of its own, never of another job's."""
    assert job.key is not None and job.lock is not None
    lock, pythons = job.lock, tuple(read_python(cell.python).version for cell in job.cells if cell.python)

    def fits(made: WheelIdentity) -> None:
        if wrong := unlike(lock, pythons, made):
            message = f"`{wheel.name}` is not what its job asked for: it has {', '.join(wrong)}"
            raise ChecksFailed(message, hint="look at the worker that built it, and at the project's build file")

    given = msgspec.structs.replace(addition(folder, job.key, lock), fits=fits, **how)
    (entry,) = shelf.add(folder, [wheel], given)
    minutes = round(seconds / 60, 2)
    record(folder, ShelvedJob(key=lock.key, wheel=entry.file, sha256=entry.sha256, lock=lock, minutes=minutes))
    return entry


def unlike(lock: FleetLock, pythons: Sequence[str], made: WheelIdentity) -> list[str]:
    """In what a wheel is not what a lock asks for. A wheel without GPU code is an extension that has none.

    A project of one's own may call its wheel as it likes, but not like one that others look for.
    """
    project, _, version = (lock.source or "").partition("==")
    if lock.kind is JobKind.TORCH or not version:
        taken = lock.kind is JobKind.TORCH or canonicalize_name(made.project or "") in ("torch", *PROJECTS)
        project = lock.project if taken else made.project or ""
        version = (lock.torch if lock.kind is JobKind.TORCH else lock.version) or made.version or ""
    cuda, asked = made.cuda, lock.cuda_version
    parts = min(len(cuda.parts), len(asked.parts)) if cuda and asked else 0
    lacks = [str(target) for target in lock.targets if str(target) not in made.targets]
    rows = (
        ("the name", made.project, project, canonicalize_name(made.project or "") == canonicalize_name(project)),
        ("the version", made.version, version, _public(made.version) == _public(version)),
        ("the torch", made.torch, lock.torch, lock.torch is None or _public(made.torch) in (None, _public(lock.torch))),
        ("the CUDA", cuda, asked, cuda is None or (asked is not None and cuda.parts[:parts] == asked.parts[:parts])),
        ("the system", made.system, lock.system, made.system in (None, lock.system)),
        ("the processor", made.machine, lock.machine, made.machine in (None, lock.machine)),
        ("the GPU code", " ".join(made.targets), " ".join(lacks), not lacks or not (made.targets or made.is_torch)),
    )
    wrong = [f"{what} `{have or 'none'}`, not `{wanted or 'none'}`" for what, have, wanted, same in rows if not same]
    wanted = dict.fromkeys(pythons or filter(None, [lock.python]))
    return wrong + [f"no code for Python {each}" for each in wanted if not shelf.runs_on(made.tags, each)]


def _public(version: str | None) -> str | None:
    return version and canonicalize_version(version.partition("+")[0])


def addition(folder: Path, key: str, lock: FleetLock) -> Addition:
    others = frozenset(job.wheel for job in jobs_on(folder).values() if job.key != key)
    return Addition(replace=True, kept=others, cuda=lock.cuda_version)


def _read(path: Path) -> ShelvedJob | None:
    try:
        found = codec.from_json(files.read_bytes(path, limit=1024 * 1024), ShelvedJob, name=f"`{path.name}`")
    except RekindleError:
        return None
    return found if found.key == path.name.removesuffix(".json") == found.lock.key else None
