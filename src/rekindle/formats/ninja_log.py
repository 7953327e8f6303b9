"""Ninja's `.ninja_log`: which output took how long, the last time it was built."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec

from rekindle.core import files
from rekindle.core.errors import BadInput


class NinjaStep(msgspec.Struct, frozen=True, kw_only=True):
    """One finished command, by its output. Times are milliseconds since that ninja started."""

    output: str
    start: int
    end: int
    command: str = ""
    """The hash of the command line: outputs of one command share it."""

    @property
    def milliseconds(self) -> int:
        return self.end - self.start


def read(path: Path) -> list[NinjaStep]:
    return parse(files.read_bytes(path, limit=64 << 20), name=str(path))


def parse(data: bytes, *, name: str = "the log") -> list[NinjaStep]:
    """The steps in the order they ended. A later line about the same output replaces the earlier one, as in ninja.

    A command with several outputs has a line for each, with the same times.
    """
    lines = io.TextIOWrapper(io.BytesIO(data), "utf-8", "replace")
    if not lines.readline().startswith("# ninja log v"):
        raise BadInput(f"`{name}` is not a ninja log", hint="it is called `.ninja_log` and lies in the build folder")
    steps: dict[str, NinjaStep] = {}
    for line in lines:
        fields = line.rstrip("\n").split("\t")
        # A build that was killed leaves half a line.
        if len(fields) < 5 or not (_number(fields[0]) and _number(fields[1])):
            continue
        start, end = int(fields[0]), int(fields[1])
        if end < start:
            continue
        steps.pop(fields[3], None)
        steps[fields[3]] = NinjaStep(output=fields[3], start=start, end=end, command=fields[4])
    return list(steps.values())


def _number(text: str) -> bool:
    """Ninja counts in 32 bits: 24 days."""
    return text.isascii() and text.isdigit() and len(text) < 11 and int(text) < 1 << 31
