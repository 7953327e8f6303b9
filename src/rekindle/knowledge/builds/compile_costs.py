"""What the files of real builds took to compile: memory for the governor, time for an estimate.

Both are what a build starts from before this machine has built itself.
"""

from __future__ import annotations

from rekindle.knowledge.tables import NamedRow, cached, rows


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


_memory = rows("compile_memory.json", "builds", MeasuredBuild)
"""MiB."""
compile_times = rows("compile_times.json", "builds", MeasuredBuild)
"""Tenths of a second. One machine's: only their proportions count."""


@cached
def compile_memory() -> dict[str, int]:
    """Bytes by `target:folder/file`, as a build names its outputs: the most that any of the builds took."""
    found: dict[str, int] = {}
    for build in _memory():
        for file, size in build.files.items():
            found[file] = max(found.get(file, 0), size * 1024**2)
    return found
