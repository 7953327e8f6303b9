"""What a person reads of a fleet: the plan, the state of a run, its progress."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename

from rekindle.core import console
from rekindle.core.command import pip, rekindle
from rekindle.core.findings import State
from rekindle.fleet.job import FleetJob, JobState
from rekindle.fleet.planning import FleetPlan, guessed, spoken_minutes
from rekindle.fleet.state import FAILED, FleetEvent, FleetStatus
from rekindle.model.wheel import read_name


class Pace:
    """What jobs of a project take: measured where any is done, else what the plan says."""

    def __init__(self, jobs: Mapping[str, FleetJob], events: Iterable[FleetEvent]) -> None:
        self.jobs = jobs
        self._took: dict[str, list[float]] = {}
        for each in events:
            job = jobs.get(each.key or "")
            if each.event == "done" and job is not None and each.seconds is not None:
                self.took(job, each.seconds)

    def took(self, job: FleetJob, seconds: float) -> None:
        self._took.setdefault(_kind(job), []).append(seconds)

    def expected(self, job: FleetJob) -> float | None:
        """Seconds; None when nobody knows."""
        measured = self._took.get(_kind(job))
        if measured:
            return statistics.median(measured)
        return job.estimate.minutes * 60.0 if job.estimate.minutes is not None else None

    def left(self, waiting: Sequence[str], running: Mapping[str, float], slots: int) -> float | None:
        """Seconds until all is done on so many places at once; None when nothing is known of any job."""
        times = [self.expected(self.jobs[key]) for key in waiting]
        begun = [(self.expected(self.jobs[key]), since) for key, since in running.items()]
        known = [each for each in times if each is not None]
        rest = [max(0.0, each - since) for each, since in begun if each is not None]
        if not known and not rest:
            return None
        # What nobody knows takes as long as the others do.
        unknown = (len(times) - len(known)) * (statistics.mean(known) if known else 0.0)
        return max((sum(known) + sum(rest) + unknown) / max(1, slots), *rest, 0.0)


def progress_line(counts: Mapping[str, int], running: Sequence[tuple[str, str, str]], left: float | None) -> str:
    """`5 of 24 done, 1 failed; 3 running: spark-cu118 on one (compile); about 12 min left`."""
    total = sum(counts.values())
    parts = [f"{counts.get('done', 0)} of {total} done"]
    parts += [
        f"{count} {state}" for state, count in counts.items() if count and state not in ("done", "waiting", "running")
    ]
    text = ", ".join(parts)
    if running:
        named = ", ".join(f"{name} on {worker} ({step})" for name, worker, step in running[:4])
        more = f" and {len(running) - 4} more" if len(running) > 4 else ""
        text += f"; {len(running)} running: {named}{more}"
    if left is not None:
        text += f"; about {spoken_minutes(max(1, round(left / 60)))} left"
    return text


def _kind(job: FleetJob) -> str:
    assert job.lock is not None
    return f"{job.lock.project} {bool(job.lock.cuda)} {len(job.lock.targets)}"


_TITLES = {
    JobState.BUILD: "To build, in this order",
    JobState.DONE: "Done already",
    JobState.NOT_NEEDED: "Not needed: an official wheel serves",
    JobState.IMPOSSIBLE: "Impossible",
}
_MOST = 200


def plan_lines(plan: FleetPlan) -> Iterator[str]:
    for state, title in _TITLES.items():
        jobs = [job for job in plan.jobs if job.state is state]
        if not jobs:
            continue
        yield f"{title} ({len(jobs)})"
        for job in jobs[:_MOST]:
            time = f"{guessed(job.estimate):>10}  {job.estimate.disk_gb:>5.1f} GB  " if state is JobState.BUILD else ""
            serves = f"  ({len(job.cells)} combinations)" if len(job.cells) > 1 else ""
            yield f"  {time}{job.name}{serves}"
            if state is not JobState.BUILD:
                yield console.wrap(job.reason, indent=" " * 6)
        if len(jobs) > _MOST:
            yield f"  … and {len(jobs) - _MOST} more (`--json` lists them all)"
        yield ""
    yield from map(console.wrap, _totals(plan))


def _totals(plan: FleetPlan) -> Iterator[str]:
    all_ = plan.totals
    machines = "1 machine" if all_.workers == 1 else f"{all_.workers} machines"
    yield f"{all_.build} to build, {all_.done} done, {all_.not_needed} not needed, {all_.impossible} impossible"
    if all_.build:
        unknown = f"; no time is known for {all_.unknown} of them" if all_.unknown else ""
        yield (
            f"about {spoken_minutes(all_.wall_minutes)} on {machines} of eight cores "
            f"({spoken_minutes(all_.minutes)} one after another){unknown}"
            if all_.unknown < all_.build
            else "how long they take is not known"
        )
        download = f", {all_.download_gb:.0f} GB to download" if all_.download_gb >= 0.5 else ""
        yield f"{max(all_.disk_gb, 1):.0f} GB of disk at once{download}"


def status_lines(status: FleetStatus) -> Iterator[str]:
    """What went wrong with its cause and its fix, what runs, and the sums."""
    for job in status.jobs:
        if job.state in FAILED:
            yield f"{job.state:<10} {job.name}"
            yield from (_told(line) for line in (job.reason, job.cause, job.fix and f"fix: {job.fix}") if line)
            if job.log:
                yield f"           log: {job.log}"
        elif job.state == "done" and job.check and job.check.state is State.UNVERIFIED:
            yield f"UNVERIFIED {job.name}"
            yield _told(job.check.reason)
        elif job.state == "running":
            yield f"running    {job.name}  on {job.worker}, {job.step or 'begun'}"
    order = ("done", "running", "waiting", "failed", "aside", "unplaced", "cancelled", "not-needed", "impossible")
    said = [f"{status.counts[state]} {_SPOKEN.get(state, state)}" for state in order if status.counts.get(state)]
    took = f" after {status.seconds:.0f} s" if status.seconds is not None else ""
    yield (", ".join(said) or "no jobs") + took
    checked = [job.check for job in status.jobs if job.check]
    if checked:
        good = sum(each.state in (State.PASS, State.WARN) for each in checked)
        yield f"{good} of {len(checked)} wheels with GPU code were checked on a card"
    if status.impossible:
        yield from dict.fromkeys(_told(job.reason) for job in status.jobs if job.reason)
    if status.shelf and status.counts.get("done"):
        yield f"wheels on the shelf {status.shelf}"
        index = (Path(status.shelf).absolute() / "simple").as_uri()
        every = list(dict.fromkeys(_requirements(status)))
        yield from (f"  {pip('install', '--extra-index-url', index, each)}" for each in every[:3])
        if len(every) > 3:
            yield f"  and {len(every) - 3} more: `{rekindle('shelf', 'list', '--shelf', status.shelf)}`"


def _told(text: str) -> str:
    return console.wrap(text, indent=" " * 11)


def _requirements(status: FleetStatus) -> Iterator[str]:
    for job in status.jobs:
        if job.state == "done" and job.wheel:
            with contextlib.suppress(InvalidWheelFilename):
                made = read_name(job.wheel)
                yield f"{made.project}=={made.version}"


_SPOKEN = {"aside": "set aside", "unplaced": "without a worker", "not-needed": "not needed"}
