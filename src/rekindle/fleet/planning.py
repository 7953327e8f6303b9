"""`rekindle fleet plan`: every job of a matrix with its reason, size, time and place in the order. Nothing is run."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from rekindle.core import console
from rekindle.core.errors import NotFound
from rekindle.fleet import matrix_file, shelved
from rekindle.fleet.job import FleetJob, FleetLock, JobEstimate, JobKind, JobState, cell_name, name_of
from rekindle.fleet.locking import Outcome, Resolving
from rekindle.fleet.matrix_file import MatrixCell, MatrixFile
from rekindle.fleet.shelved import ShelvedJob
from rekindle.knowledge.builds import costs
from rekindle.stack.plan import Plan, fingerprint
from rekindle.wheels.shelf import shelf


class FleetTotals(msgspec.Struct, frozen=True, kw_only=True):
    """`minutes` is the sum of the jobs that have an estimate, `wall_minutes` on so many machines at once."""

    build: int
    done: int
    not_needed: int
    impossible: int
    minutes: int
    wall_minutes: int
    workers: int
    unknown: int
    """Jobs to build that nobody has a time for."""
    disk_gb: float
    """The most that the jobs which run at once take."""
    download_gb: float


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle fleet plan`."""

    schema: str = "rekindle.fleet-plan/1"
    knowledge: str
    jobs: tuple[FleetJob, ...]
    totals: FleetTotals
    questions: int
    """How often the resolver was asked."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the matrix names and nothing is built for, each with its reason: nobody should miss it later."""
        kinds = (JobState.IMPOSSIBLE, JobState.NOT_NEEDED)
        return tuple(f"{job.name}: {job.reason}" for job in self.jobs if job.state in kinds)


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with what its jobs need to be built: kept in the state folder of a run."""

    plan: FleetPlan
    plans: dict[str, Plan] = {}
    """By key: the torch that is built, or that an extension is built for."""
    sources: dict[str, str] = {}
    """By key: the folder of the project."""


def make(
    path: Path,
    *,
    machines: Sequence[Path] = (),
    shelf_folder: Path | None = None,
    published: Collection[str] = (),
    workers: int = 1,
    one_cache: bool = True,
) -> Planned:
    """The plan of a matrix. `machines` are more snapshots; `shelf_folder` says what is done already, as do
    the hashes of what a site of ours has `published`; hosted runners have no `one_cache`: each job has its own."""
    matrix = matrix_file.read(path)
    root = path.resolve().parent
    named = {**matrix_file.snapshots_of(matrix, root), **{str(each): each for each in machines}}
    for each in named.values():
        if not each.is_file():
            raise NotFound(f"there is no snapshot `{each}`", hint="`rekindle doctor --save FILE` writes one")
    have = shelved.jobs_on(shelf_folder, published) if shelf_folder else {}
    offers = shelf.offers(shelf_folder, published=published).offers if shelf_folder and shelf_folder.is_dir() else ()
    resolving = Resolving(matrix, root, offers)
    cells = list(matrix_file.cells(matrix, tuple(named)))
    # What differs in its project alone is one question: its answer is not kept for long.
    with console.waiting(f"planning {console.plural(len(cells), 'job')}"):
        found = {cell: resolving.outcome(cell) for cell in sorted(cells, key=_question)}
    outcomes = [(cell, found[cell]) for cell in cells]
    jobs, plans = _jobs(outcomes, have)
    ordered = _ordered(_with_needs(jobs, outcomes), share=costs.further_python().share if one_cache else 1)
    return Planned(
        plan=FleetPlan(
            knowledge=fingerprint(),
            jobs=ordered,
            totals=_totals(ordered, workers),
            questions=resolving.asked,
        ),
        plans=plans,
        sources=_sources(ordered, matrix, root),
    )


def _question(cell: MatrixCell) -> list[str]:
    asked = (cell.torch, cell.cuda, cell.gpu, cell.python, cell.os, cell.arch, cell.profile, cell.machine)
    return [each or "" for each in asked]


def _jobs(
    outcomes: Iterable[tuple[MatrixCell, Outcome]], have: dict[str, ShelvedJob]
) -> tuple[list[FleetJob], dict[str, Plan]]:
    """One job per lock; combinations that come to the same wheel share it."""
    jobs: dict[str, FleetJob] = {}
    plans: dict[str, Plan] = {}
    for cell, outcome in outcomes:
        key = outcome.lock.key if outcome.lock else None
        place = key or f"{outcome.state.value} {cell_name(cell)} {cell}"
        if place in jobs:
            jobs[place] = msgspec.structs.replace(jobs[place], cells=(*jobs[place].cells, cell))
            continue
        jobs[place] = _job(cell, outcome, have.get(key) if key else None)
        if key and outcome.plan is not None:
            plans[key] = outcome.plan
    return list(jobs.values()), plans


def _job(cell: MatrixCell, outcome: Outcome, done: ShelvedJob | None) -> FleetJob:
    estimate = outcome.estimate
    if done is not None and done.minutes is not None:
        estimate = msgspec.structs.replace(estimate, minutes=max(1, round(done.minutes)))
    return FleetJob(
        name=name_of(outcome.lock) if outcome.lock else cell_name(cell),
        state=JobState.DONE if done else outcome.state,
        reason=f"on the shelf: {done.wheel}" if done else outcome.reason,
        key=outcome.lock.key if outcome.lock else None,
        cells=(cell,),
        lock=outcome.lock,
        cards=outcome.cards,
        wheel=done.wheel if done else outcome.wheel,
        estimate=estimate,
    )


def _with_needs(jobs: list[FleetJob], outcomes: list[tuple[MatrixCell, Outcome]]) -> list[FleetJob]:
    """An extension of a torch that has to be built comes after that job; without such a job it is impossible."""
    wants: dict[str, FleetLock] = {each.lock.key: each.torch for _, each in outcomes if each.lock and each.torch}
    by_key = {job.key: job for job in jobs if job.key}
    found = []
    for job in jobs:
        torch = wants.get(job.key or "")
        if torch is None or job.state is not JobState.BUILD:
            found.append(job)
        elif torch.key in by_key:
            found.append(msgspec.structs.replace(job, needs=(torch.key,)))
        else:
            reason = f"no wheel of torch {torch.torch} with CUDA {torch.cuda} serves these cards: add project `torch`"
            found.append(msgspec.structs.replace(job, state=JobState.IMPOSSIBLE, reason=reason))
    return found


def _ordered(jobs: list[FleetJob], *, share: float) -> tuple[FleetJob, ...]:
    """What to build first: what others wait for, then the longest; what only differs in its Python follows its like.

    The first job of those alike fills the compile cache, and the others take a share of its time.
    """
    building = [job for job in jobs if job.state is JobState.BUILD]
    leaders: dict[str, FleetJob] = {}
    for job in building:
        assert job.lock is not None
        leaders.setdefault(job.lock.compiles_like, job)
    timed = [job if _leads(job, leaders) else _shared(job, share) for job in building]
    needed = {key for job in timed for key in job.needs}

    def rank(job: FleetJob) -> tuple[bool, bool, bool, int, str]:
        minutes = job.estimate.minutes or 0
        return (bool(job.needs), not _leads(job, leaders), job.key not in needed, -minutes, job.name)

    order = {job.key: number for number, job in enumerate(sorted(timed, key=rank), 1)}
    by_key = {job.key: msgspec.structs.replace(job, order=order[job.key]) for job in timed}
    first = sorted(by_key.values(), key=lambda job: job.order or 0)
    return (*first, *(job for job in jobs if job.state is not JobState.BUILD))


def _leads(job: FleetJob, leaders: dict[str, FleetJob]) -> bool:
    assert job.lock is not None
    return leaders[job.lock.compiles_like].key == job.key


def _shared(job: FleetJob, share: float) -> FleetJob:
    if job.estimate.minutes is None:
        return job
    estimate = msgspec.structs.replace(job.estimate, minutes=max(1, round(job.estimate.minutes * share)))
    return msgspec.structs.replace(job, estimate=estimate)


def _totals(jobs: Sequence[FleetJob], workers: int) -> FleetTotals:
    count = {state: sum(job.state is state for job in jobs) for state in JobState}
    building = [job for job in jobs if job.state is JobState.BUILD]
    largest = sorted((job.estimate.disk_gb for job in building), reverse=True)[:workers]
    return FleetTotals(
        build=count[JobState.BUILD],
        done=count[JobState.DONE],
        not_needed=count[JobState.NOT_NEEDED],
        impossible=count[JobState.IMPOSSIBLE],
        minutes=sum(job.estimate.minutes or 0 for job in building),
        wall_minutes=wall_minutes(building, workers),
        workers=workers,
        unknown=sum(job.estimate.minutes is None for job in building),
        disk_gb=round(sum(largest), 1),
        download_gb=round(sum(job.estimate.download_gb for job in building), 1),
    )


def wall_minutes(jobs: Sequence[FleetJob], workers: int) -> int:
    """When the last job ends if each free machine takes the next job whose needs and whose like are through."""
    free = [0] * max(1, workers)
    through: dict[str, int] = {}
    for job in jobs:
        assert job.lock is not None and job.key is not None
        like = job.lock.compiles_like
        ready = max((through.get(key, 0) for key in (*job.needs, like)), default=0)
        end = max(heapq.heappop(free), ready) + (job.estimate.minutes or 0)
        heapq.heappush(free, end)
        through[job.key] = end
        through.setdefault(like, end)
    return max(through.values(), default=0)


def _sources(jobs: Sequence[FleetJob], matrix: MatrixFile, root: Path) -> dict[str, str]:
    """Where the sources of projects of one's own lie; PyTorch's are brought by the worker."""
    found: dict[str, str] = {}
    for job in jobs:
        entry = matrix.projects.get(job.lock.project) if job.lock else None
        if job.key is None or job.lock is None or entry is None:
            continue
        if job.lock.kind is JobKind.CMAKE and entry.build:
            found[job.key] = str((root / entry.build).resolve())
        elif entry.source:
            found[job.key] = str((root / entry.source).resolve())
    return found


def guessed(estimate: JobEstimate) -> str:
    """`2 h 09 min`, `18 min`, or that nobody knows."""
    return spoken_minutes(estimate.minutes) if estimate.minutes is not None else "?"


def spoken_minutes(minutes: int) -> str:
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
