"""What every export shares: which jobs, in how many rounds, by which commands. Each format only writes it down."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from rekindle.core import own
from rekindle.core.command import ShellVariable, rekindle, workflow_step
from rekindle.core.errors import UsageError
from rekindle.fleet.job import FleetJob, JobKind, JobState
from rekindle.fleet.planning import FleetPlan

SHELF = "shelf"
WORK = "fleet-work"
COMPILED = f"{WORK}/ccache"
"""What goes from round to round: objects, not the build tree, which is many times larger than a cache may be."""
FREE_GB = 14
"""What a hosted runner has free before its preinstalled software is removed."""


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`limit` is how many minutes a runner gives to a job; `cores` what it has, against the eight of the estimates."""

    matrix: str = "matrix.toml"
    rekindle: str | None = None
    """What pip installs; an address works as well. None: where this Rekindle came from."""
    limit: int = 350
    cores: int = 4
    runner: dict[str, str] = {}
    """By `linux-x86_64` and so on: the runner's label or image."""
    rounds: int | None = None
    accept_licence: bool = False
    """You have read the terms that `rekindle toolchain install` shows, and accept them for these runners."""
    site: bool = False
    """The runners take up what is published at the repository's own pages."""
    by_hand: bool = False
    """A push starts nothing: the first one would come before key and pages are there."""


class ExportedJob(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the exported matrix. `toolchain` are words for `rekindle toolchain install`."""

    key: str
    name: str
    system: str
    machine: str
    python: str
    toolchain: tuple[str, ...] = ()
    minutes: int | None = None
    disk_gb: float = 0.0
    project: str = ""
    needs: str = ""
    """The key of the job whose wheel it needs."""
    level: int = 0
    """Jobs of level 1 need wheels of level 0."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    jobs: tuple[ExportedJob, ...]
    rounds: int
    settings: ExportSettings


class ExportRound(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the jobs that need the same things built before them. What is not finished goes on in the next."""

    kind: str
    number: int
    last: bool
    jobs: tuple[ExportedJob, ...]


def exported(plan: FleetPlan, settings: ExportSettings) -> Exported:
    jobs = tuple(_job(job) for job in plan.jobs if job.state is JobState.BUILD)
    if not jobs:
        raise UsageError("there is nothing to build in this matrix", hint="`rekindle fleet plan` says why")
    return Exported(jobs=jobs, rounds=settings.rounds or _rounds(jobs, settings), settings=settings)


def _job(job: FleetJob) -> ExportedJob:
    lock = job.lock
    assert lock is not None and job.key is not None
    words = [f"cuda=={lock.cuda}"] if lock.cuda else []
    if lock.kind is JobKind.TORCH and lock.cudnn:
        words += [f"cudnn=={lock.cudnn}", "--cuda", str(lock.cuda)]
    return ExportedJob(
        key=job.key[:16],
        name=job.name,
        system=lock.system,
        machine=lock.machine,
        python=lock.python or "3.12",
        toolchain=tuple(words),
        minutes=job.estimate.minutes,
        disk_gb=job.estimate.disk_gb,
        project=lock.project,
        needs=job.needs[0][:16] if job.needs else "",
        level=1 if job.needs else 0,
    )


def _rounds(jobs: Sequence[ExportedJob], settings: ExportSettings) -> int:
    """As many turns as the longest job needs on such a runner, and one more: estimates are rough."""
    longest = max((job.minutes or 0 for job in jobs), default=0) * 8 / settings.cores
    return math.ceil(longest / usable(settings)) + 1 if longest > usable(settings) else 1


def rounds(exported: Exported) -> Iterator[ExportRound]:
    """One after another: all turns of the builds, then all turns of what needs their wheels."""
    for level in sorted({job.level for job in exported.jobs}):
        jobs = tuple(job for job in exported.jobs if job.level == level)
        for number in range(1, exported.rounds + 1):
            kind = "build" if level == 0 else "extensions"
            yield ExportRound(kind=kind, number=number, last=number == exported.rounds, jobs=jobs)


def divided(jobs: Sequence[ExportedJob], most: int) -> Iterator[tuple[str, Sequence[ExportedJob]]]:
    """In parts that a matrix of the format can hold, each with what its name ends in."""
    for start in range(0, len(jobs), most):
        yield f"-{start // most + 1}" if len(jobs) > most else "", jobs[start : start + most]


def variables(settings: ExportSettings) -> dict[str, str]:
    return {"REKINDLE_REQUIREMENT": own.elsewhere(settings.rekindle, "sign"), "PYTHONUTF8": "1"}


def usable(settings: ExportSettings) -> int:
    """What is left of a runner's time for the build: fetching, unpacking and saving the cache take the rest."""
    return max(5, settings.limit - 40)


def toolchain_words(settings: ExportSettings) -> str:
    """Without your word on the terms the step stops and shows them."""
    return "rekindle toolchain install" + (" --accept-licence" if settings.accept_licence else "")


def notes(exported: Exported) -> str:
    """What whoever reads the file should know before it is run."""
    settings = exported.settings
    found = []
    if any(job.toolchain for job in exported.jobs) and not settings.accept_licence:
        found.append(
            "The step `Toolchain` stops at NVIDIA's terms: read them, then write this again with `--accept-licence`."
        )
    return "".join(f"# {line}\n" for line in found)


def build_command(settings: ExportSettings, *, cache: str = COMPILED) -> str:
    """The command of one turn for the job `KEY`. Exit code 75: the time was up, and the next turn goes on."""
    return workflow_step(
        rekindle(
            "fleet", "job", settings.matrix, ShellVariable("KEY"), "--shelf", SHELF, "--work", WORK,
            "--cache", cache, "--time-limit", str(usable(settings)),
            *(("--from", ShellVariable("SITE_URL")) if settings.site else ()),
        )
    )  # fmt: skip


def relative_matrix(matrix: Path, folder: Path) -> str:
    """The matrix as the workflow finds it: from the root of the repository."""
    try:
        return matrix.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError as error:
        message = f"`{matrix}` is not below `{folder}`"
        raise UsageError(message, hint="export from the root of the repository that holds the matrix") from error
