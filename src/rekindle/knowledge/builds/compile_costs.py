"""What the files of real builds took to compile: memory for the governor, time for an estimate.

Both are what a build starts from before this machine has built itself.
"""

from __future__ import annotations

import msgspec

from rekindle.knowledge.tables import Row, cached, observed


class BuildMemory(Row, frozen=True, kw_only=True):
    """MiB per file, by target, folder and file; a file that took next to nothing is left out."""

    id: str
    targets: dict[str, dict[str, dict[str, int]]]


class _Table(msgspec.Struct, frozen=True):
    builds: tuple[BuildMemory, ...]


@cached
def compile_memory() -> dict[str, int]:
    """Bytes by `target:folder/file`, as a build names its outputs: the most that any of the builds took."""
    found: dict[str, int] = {}
    for build in observed("compile_memory", _Table).builds:
        for target, folders in build.targets.items():
            for folder, files in folders.items():
                for file, size in files.items():
                    key = ":".join(filter(None, (target, f"{folder}/{file}" if folder else file)))
                    found[key] = max(found.get(key, 0), size * 1024**2)
    return found


class BuildTimes(Row, frozen=True, kw_only=True):
    """Tenths of a second per file, by target, folder and file. One machine's: only their proportions count."""

    id: str
    targets: dict[str, dict[str, dict[str, int]]]

    @property
    def seconds(self) -> dict[str, float]:
        """By `target:folder/file`, as a build names its outputs."""
        return {
            ":".join(filter(None, (target, f"{folder}/{file}" if folder else file))): tenths / 10
            for target, folders in self.targets.items()
            for folder, files in folders.items()
            for file, tenths in files.items()
        }


class _TimesTable(msgspec.Struct, frozen=True):
    builds: tuple[BuildTimes, ...]


@cached
def compile_times() -> tuple[BuildTimes, ...]:
    return observed("compile_times", _TimesTable).builds
