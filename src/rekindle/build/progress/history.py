"""The times of builds on this machine, kept in Rekindle's cache: what the next estimate starts from."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from rekindle.build.governor import record
from rekindle.build.progress import outputs
from rekindle.build.progress.weights import Times
from rekindle.core import codec, files
from rekindle.core.errors import RekindleError
from rekindle.core.paths import cache_folder
from rekindle.formats import ninja_log
from rekindle.knowledge.builds.compile_costs import compile_times
from rekindle.knowledge.builds.sweeps import file_seconds

_KEPT = 12
_LEAST = 500
"""Milliseconds that something other than a compile or a link must take to be worth remembering."""
_FEWEST = 5
"""A build of fewer files than this teaches nothing."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of every output, by `Output.key`."""

    schema: str = "rekindle.times/1"
    name: str
    milliseconds: dict[str, int]


def folder() -> Path:
    return cache_folder() / "times"


def read_log(log: Path) -> dict[str, float]:
    """Seconds of every command that Ninja's log names, by the `Output.key` of its first output.

    A generator that writes a thousand headers is one piece of work; what takes no time is none.
    """
    found: dict[str, float] = {}
    seen: set[tuple[int, int]] = set()
    for step in ninja_log.read(log):
        output = outputs.read(step.output)
        if output.kind == "other":
            if step.milliseconds < _LEAST or (step.start, step.end) in seen:
                continue
            seen.add((step.start, step.end))
        if step.milliseconds > 0:
            found[output.key] = step.milliseconds / 1000
    return found


def keep(log: Path, name: str, compiles: Path | None = None) -> None:
    """What this build took, beside what it took before. An estimate is never worth a failed build.

    Ninja counts the time that a compile waits at the gate; the governor's record of `compiles` does not.
    """
    with contextlib.suppress(RekindleError, OSError):
        seconds = read_log(log)
        for each in record.read(compiles) if compiles else ():
            key = outputs.read(each.object).key
            if key in seconds and not each.code:
                seconds[key] = each.seconds
        if len(seconds) < _FEWEST:
            return
        path = folder() / f"{name}.json"
        kept = Kept(name=name, milliseconds={key: round(value * 1000) for key, value in seconds.items()})
        files.write_text(path, codec.to_json(kept, indent=0))
        every = sorted(folder().glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in every[_KEPT:]:
            old.unlink(missing_ok=True)


def builds(name: str) -> list[Times]:
    """Every build that was timed: the one of this name, this machine's others, the shipped ones, the sweeps."""
    own: list[Times] = []
    paths = sorted(folder().glob("*.json"), key=lambda path: (path.stem != name, path.name))
    for path in paths:
        with contextlib.suppress(RekindleError, OSError):
            kept = codec.from_json(path.read_bytes(), Kept, name=f"`{path}`")
            own.append(Times(name=kept.name, seconds={key: ms / 1000 for key, ms in kept.milliseconds.items()}))
    shipped = [Times(name=each.id, seconds=each.seconds) for each in compile_times()]
    return own + shipped + [Times(name=f"sweep of {torch}", seconds=times) for torch, times in file_seconds().items()]


class LogTail:
    """Ninja's log of a running build: the seconds of what has been made since this was opened.

    Where the governor has a record of a compile, that counts: Ninja's time has the wait at the gate in it.
    """

    def __init__(self, path: Path, compiles: Path | None = None) -> None:
        self._path = path
        self._compiles = record.Tail(compiles) if compiles else None
        self._offset = 0
        self._before = self._new()
        self._found: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        for name, step in self._new().items():
            if self._before.get(name) != step:
                self._found[name] = step.milliseconds / 1000
        for each in self._compiles.read() if self._compiles else ():
            self._found[each.object] = each.seconds
        return self._found

    def _new(self) -> dict[str, ninja_log.NinjaStep]:
        """What was added since the last look; the whole file when Ninja has rewritten it shorter."""
        with contextlib.suppress(RekindleError, OSError), self._path.open("rb") as stream:
            size = stream.seek(0, 2)
            self._offset = self._offset if self._offset <= size else 0
            stream.seek(self._offset)
            whole = stream.read()
            whole = whole[: whole.rfind(b"\n") + 1]
            head = b"# ninja log v7\n" if self._offset else b""
            self._offset += len(whole)
            return {step.output: step for step in ninja_log.parse(head + whole)} if whole else {}
        return {}
