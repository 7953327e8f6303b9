"""How far a run is and how long it will take: by the plan's estimates, corrected by what finished jobs took."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from rekindle.fleet.job import FleetJob
from rekindle.fleet.journal import FleetEvent
from rekindle.fleet.planning import spoken_minutes


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


def line(counts: Mapping[str, int], running: Sequence[tuple[str, str, str]], left: float | None) -> str:
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
