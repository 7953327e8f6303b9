"""How much there is to download, to store, and to wait for."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.builds import costs
from rekindle.knowledge.builds.costs import ChangeEffort
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation

_CORES_ASSUMED = 8


class RouteEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Rough on purpose. `minutes` is for the cores of the machine, or for eight when they are not known."""

    download_gb: float
    disk_gb: float
    minutes: int
    cores: int | None = None
    """What the minutes of a build are for."""
    memory_gb: float | None = None
    basis: str = ""

    @property
    def time(self) -> str:
        hours = f"about {self.minutes} min" if self.minutes < 90 else f"about {self.minutes / 60:.1f} h"
        return hours + (f" on {self.cores} core{'s' if self.cores != 1 else ''}" if self.cores else "")

    def longer(self, *changes: ChangeEffort | None) -> RouteEstimate:
        """With what has to be changed before."""
        more = sum(each.minutes for each in changes if each)
        return msgspec.structs.replace(self, minutes=self.minutes + more)


def ready_made(route: RouteKind, system: str) -> RouteEstimate | None:
    row = costs.ready_made(route.value, system)
    if row is None:
        return None
    return RouteEstimate(download_gb=row.download_gb, disk_gb=row.disk_gb, minutes=row.minutes, basis=row.source)


def source_build(torch: str, situation: Situation, *, half: bool = False) -> RouteEstimate | None:
    """The time on these cores, fewer of them where memory runs out first: one job takes some gigabytes.

    `half`: the GPU half of an official wheel alone.
    """
    row = costs.source_build(Version.parse(torch).major_minor)
    if row is None:
        return None
    memory = costs.memory()
    cores = real_cores(situation)
    minutes = costs.build_minutes(
        costs.gpu_half(row) if half else row,
        situation.system,
        cores=cores,
        jobs=jobs(situation),
        architectures=len(situation.capabilities),
    )
    return RouteEstimate(
        download_gb=row.download_gb,
        disk_gb=row.disk_gb,
        minutes=minutes,
        cores=cores,
        memory_gb=max(memory.least_gb, memory.gb_per_job),
        basis=f"{cores} cores; {row.source}",
    )


def real_cores(situation: Situation) -> int:
    """Cores, not their threads; eight where nothing is known."""
    known = [each for each in (situation.cores, situation.physical_cores) if each]
    return min(known, default=_CORES_ASSUMED)


def jobs(situation: Situation) -> int:
    """How many compiles a build there runs at a time."""
    cores = situation.cores or _CORES_ASSUMED
    return costs.jobs(cores, situation.memory) or cores
