"""What a route costs in bytes and minutes: rough figures, each with where it comes from."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import NamedRow, cached, rows


class ReadyMadeEffort(NamedRow, frozen=True, kw_only=True):
    route: str
    system: str
    download_gb: float
    disk_gb: float
    minutes: int


class BuildEffort(NamedRow, frozen=True, kw_only=True):
    """Seconds of one core: for the C++ files, and for the CUDA files once per architecture."""

    first_torch: Version
    last_torch: Version
    cpp_seconds: int
    cuda_seconds: int
    download_gb: float
    disk_gb: float


class GpuHalfEffort(NamedRow, frozen=True, kw_only=True):
    """Seconds of one core for the C++ files of a GPU half."""

    cpp_seconds: int
    disk_gb: float


class MemoryEffort(NamedRow, frozen=True, kw_only=True):
    gb_per_job: float
    gb_per_cpp_job: float
    least_gb: float


class CompilerPace(NamedRow, frozen=True, kw_only=True):
    """How much longer a system's own compiler takes for the C++ files than the one that the seconds were taken with."""

    system: str
    factor: float


class FurtherPython(NamedRow, frozen=True, kw_only=True):
    """What a build for one more Python takes of the first one's time, with what that compiled in a cache."""

    share: float


class ChangeEffort(NamedRow, frozen=True, kw_only=True):
    """What it takes to change one thing of a machine."""

    minutes: int
    administrator: bool
    first: bool
    """It may be the first answer."""


class LossEffort(NamedRow, frozen=True, kw_only=True):
    """What a loss is worth, in minutes of building that would spare it. `id` is its rule."""

    minutes: int


class StillUsed(NamedRow, frozen=True, kw_only=True):
    first: Version


class SmallChip(NamedRow, frozen=True, kw_only=True):
    """A chip that computes about as much as the processor beside it."""

    cores: int


class LibraryUse(NamedRow, frozen=True, kw_only=True):
    """What fails where a library of torch has no code for the card."""

    operations: str


_ready_made = rows("estimates.toml", "ready_made", ReadyMadeEffort)
_source_build = rows("estimates.toml", "source_build", BuildEffort)
_gpu_half = rows("estimates.toml", "gpu_half", GpuHalfEffort)
_memory = rows("estimates.toml", "memory", MemoryEffort)
_pace = rows("estimates.toml", "pace", CompilerPace)
_further_python = rows("estimates.toml", "further_python", FurtherPython)
_change = rows("estimates.toml", "change", ChangeEffort)
_loss = rows("estimates.toml", "loss", LossEffort)
_still_used = rows("estimates.toml", "still_used", StillUsed)
_small_chip = rows("estimates.toml", "small_chip", SmallChip)
_library = rows("estimates.toml", "library", LibraryUse)


def ready_made(route: str, system: str) -> ReadyMadeEffort | None:
    return next((row for row in _ready_made() if row.route == route and row.system == system), None)


def source_builds() -> tuple[BuildEffort, ...]:
    """Oldest releases first."""
    return tuple(sorted(_source_build(), key=lambda row: row.first_torch))


def source_build(minor: Version) -> BuildEffort | None:
    return next((row for row in source_builds() if row.first_torch <= minor <= row.last_torch), None)


def gpu_half(row: BuildEffort) -> BuildEffort:
    """What the GPU half of an official wheel takes, compiled alone."""
    half = _gpu_half()[0]
    return msgspec.structs.replace(row, cpp_seconds=half.cpp_seconds, disk_gb=half.disk_gb)


def build_disk(torch: str, *, cuda: bool, half: bool = False) -> int:
    """Bytes that a build of this release takes; without CUDA's files, the larger half, half of it.

    `half`: only the GPU half is compiled.
    """
    row = source_build(Version.parse(torch).major_minor) or source_builds()[-1]
    row = gpu_half(row) if half else row
    return int(row.disk_gb * 1024**3) // (1 if cuda else 2)


def heaviest(*, cuda: bool) -> int:
    """Bytes that the heaviest compile of a PyTorch takes, with CUDA files in the build and without."""
    return (4 if cuda else 2) * 1024**3


def build_minutes(row: BuildEffort, system: str, *, cores: int, jobs: int, architectures: int) -> int:
    """How long the compiling takes: every estimate asks here.

    `cores` are real ones: two threads of one core compile little more than one does.
    """
    pace = next((each.factor for each in _pace() if each.system == system), 1.0)
    cpp = row.cpp_seconds * pace / min(cores, max(jobs, 1))
    return round((cpp + row.cuda_seconds * architectures / min(jobs, cores)) / 60)


def change(id: str) -> ChangeEffort | None:
    """None: it is no change that spares a build."""
    return next((row for row in _change() if row.id == id), None)


def loss(rule: str) -> int | None:
    """None: no minutes of building outweigh it."""
    return next((row.minutes for row in _loss() if row.id == rule), None)


def operations(file: str) -> str:
    """What is lost with a library, by the name of its file."""
    row = next((row for row in _library() if row.id == file), None)
    return row.operations if row else "what runs in it fails on it"


def still_used(python: str) -> bool:
    return Version.parse(python.rstrip("t")) >= _still_used()[0].first


def few_cores(chips: Collection[str]) -> int | None:
    """The most cores that a card with one of these chips has, where all of them are small; else None."""
    found = {row.id: row.cores for row in _small_chip() if row.id in chips}
    return max(found.values()) if found and len(found) == len(set(chips)) else None


def memory() -> MemoryEffort:
    return _memory()[0]


def further_python() -> FurtherPython:
    return _further_python()[0]


def per_job(*, cuda: bool) -> int:
    """Bytes of memory for each compile that runs beside others."""
    row = _memory()[0]
    return int((row.gb_per_job if cuda else row.gb_per_cpp_job) * 1024**3)


def jobs(cores: int | None, memory: int | None, *, cuda: bool = True) -> int | None:
    """How many compiles at a time: as many as there are cores and room in memory for. None: neither is known.

    `memory` is in bytes. Everything that starts compilers, and every estimate of how long they take, asks here.
    """
    fitting = [cores] if cores else []
    if memory:
        fitting.append(memory // per_job(cuda=cuda))
    return max(1, min(fitting)) if fitting else None


class MeasuredBuild(NamedRow, frozen=True, kw_only=True):
    """A number per file, by target, folder and file; a file that took next to nothing is left out."""

    targets: dict[str, dict[str, dict[str, int]]]

    @property
    def seconds(self) -> dict[str, float]:
        return {name: tenths / 10 for name, tenths in self.files.items()}

    @property
    def files(self) -> dict[str, int]:
        """By `target:folder/file`, as a build names its outputs."""
        return {
            ":".join(filter(None, (target, f"{folder}/{file}" if folder else file))): number
            for target, folders in self.targets.items()
            for folder, files in folders.items()
            for file, number in files.items()
        }


_of_compiles = rows("compile_memory.json", "builds", MeasuredBuild)
"""MiB."""
compile_times = rows("compile_times.json", "builds", MeasuredBuild)
"""Tenths of a second. One machine's: only their proportions count."""


@cached
def compile_memory() -> dict[str, int]:
    """Bytes by `target:folder/file`, as a build names its outputs: the most that any of the builds took."""
    found: dict[str, int] = {}
    for build in _of_compiles():
        for file, size in build.files.items():
            found[file] = max(found.get(file, 0), size * 1024**2)
    return found
