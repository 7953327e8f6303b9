"""What hosted runners allow, held against what a matrix needs: the arithmetic, in words."""

from __future__ import annotations

from rekindle.fleet.export.workflow import FREE_GB
from rekindle.fleet.job import FleetJob, JobKind, JobState
from rekindle.fleet.planning import FleetPlan, spoken_minutes

MINUTES = 360
DISK_GB = FREE_GB
DISK_CLEANED_GB = 75
MEMORY_GB = 16
CORES = 4
CACHE_GB = 10
ASSET_GB = 2
PARALLEL = 20


def arithmetic(plan: FleetPlan, rounds: int) -> str:
    """GitHub's standard runners, public repositories. UNVERIFIED: nobody has pressed this button yet."""
    jobs = [job for job in plan.jobs if job.state is JobState.BUILD]
    torch = [job for job in jobs if job.lock and job.lock.kind is JobKind.TORCH and job.estimate.minutes]
    head = (
        f"A standard runner has {CORES} cores, {MEMORY_GB} GB of memory, {DISK_GB} GB of free disk "
        f"(about {DISK_CLEANED_GB} GB once its preinstalled software is removed), {MINUTES} minutes per job; "
        f"{PARALLEL} jobs run at once; {CACHE_GB} GB of cache per repository; {ASSET_GB} GiB per file of a release. "
        "These are GitHub's published figures; none of it was tried by us: UNVERIFIED."
    )
    lines = [head, ""]
    lines += [_line(job) for job in sorted(torch, key=lambda job: -(job.estimate.minutes or 0))[:6]]
    disk = max((job.estimate.disk_gb for job in jobs), default=0.0)
    if disk > DISK_GB:
        lines.append(
            f"- Disk: the largest job takes {disk:.0f} GB. That is more than the {DISK_GB} GB a runner has free"
            + (
                " and fits once the workflow has removed what it does not need (Linux)."
                if disk <= DISK_CLEANED_GB
                else " and than it has after cleaning."
            )
        )
    total = sum(job.estimate.minutes or 0 for job in jobs) * 8 / CORES
    if torch:
        lines.append(
            f"- All together {spoken_minutes(round(total))} on runners; {PARALLEL} at a time: the longest decides."
        )
        lines.append(
            f"- Cache: a build's ccache is 1 to 3 GB; {len(torch)} torch jobs share {CACHE_GB} GB, so the oldest are "
            "dropped. A job that lost its cache starts anew: run the workflow again, or pass a Redis with `--cache`."
        )
    lines.append(f"- Rounds: {rounds}, from the estimates for {CORES} cores and 310 minutes of building per round.")
    return "\n".join(lines)


def _line(job: FleetJob) -> str:
    minutes = (job.estimate.minutes or 0) * 8 / CORES
    return (
        f"- `{job.name}`: about {spoken_minutes(round(minutes))} on {CORES} cores "
        f"({spoken_minutes(job.estimate.minutes or 0)} on eight): {minutes / 310:.1f} rounds of 310 minutes"
    )
