"""How long the files of real builds took to compile: what an estimate starts from before this machine has built."""

from __future__ import annotations

import msgspec

from rekindle.knowledge.tables import Row, cached, observed


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


class _Table(msgspec.Struct, frozen=True):
    builds: tuple[BuildTimes, ...]


@cached
def compile_times() -> tuple[BuildTimes, ...]:
    return observed("compile_times", _Table).builds
