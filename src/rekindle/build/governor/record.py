"""One line per compile in `compiles.jsonl` of the build's folder: what it took, for the next build and for the reader.

    {"object": "b/x.cpp.o", "start": 1794722400.5, "seconds": 31.2, "peak_kb": 812044, "code": 0, "retried": false}

`start` is when the compiler really began, after any wait at the gate; a compile that was cut off has no line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import BadInput


class Compile(msgspec.Struct, frozen=True, kw_only=True):
    object: str
    """As Ninja names it, below the build folder; `/` on every system."""
    start: float
    """Seconds since 1970."""
    seconds: float
    peak_kb: int
    """The most memory that it, or the largest program it started, held. 0: could not be measured."""
    code: int
    """The compiler's; negative for a signal."""
    retried: bool = False
    """It was killed for memory once and then run alone."""


class GovernorUse(msgspec.Struct, kw_only=True):
    """What the governor did in one compile step."""

    jobs: int
    compiles: int = 0
    peak_kb: int = 0
    largest: str | None = None
    """The object with that peak."""
    waits: int = 0
    """Compiles that had to wait for memory."""
    waited: float = 0.0
    """How long all of them together, in seconds."""
    retries: int = 0
    """Compiles that the system killed for memory, and that ran alone afterwards."""
    taken_back: int = 0
    """Compiles that had begun and were sent back to wait, because memory was running out."""
    unfit: tuple[str, ...] = ()
    """What was killed for memory also when it ran alone, with what it took."""


class _Peaks(msgspec.Struct, kw_only=True):
    schema: str = "rekindle.peaks/1"
    peaks: dict[str, int] = {}


def read(path: Path) -> list[Compile]:
    """The compiles of a build's folder, oldest first; of a line that a power cut tore nothing."""
    try:
        return _parsed(files.plain_bytes(path))
    except OSError:
        return []


class Tail:
    """A file of lines that grows: the whole lines that have come since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = 0

    def new(self) -> bytes:
        """From the beginning when the file has been written anew, and shorter."""
        with contextlib.suppress(OSError), self._path.open("rb") as stream:
            self.offset = self.offset if self.offset <= stream.seek(0, 2) else 0
            stream.seek(self.offset)
            data = stream.read()
            whole = data[: data.rfind(b"\n") + 1]
            self.offset += len(whole)
            return whole
        return b""

    def compiles(self) -> list[Compile]:
        return _parsed(self.new())


def _parsed(data: bytes) -> list[Compile]:
    found = []
    for text in data.split(b"\n"):
        try:
            found.append(codec.from_json(text, Compile))
        except BadInput:
            continue
    return found


def read_peaks(path: Path) -> dict[str, int]:
    """Bytes by object, of earlier builds. A file that cannot be read is as good as none."""
    kept = codec.kept(path, _Peaks)
    return {name: size * 1024 for name, size in kept.peaks.items()} if kept else {}


def write_peaks(path: Path, before: Mapping[str, int], measured: Mapping[str, int]) -> None:
    """Keep what this build has measured, in bytes, over what earlier ones had."""
    merged = {**before, **measured}
    peaks = _Peaks(peaks={name: size // 1024 for name, size in sorted(merged.items())})
    files.write_text(path, codec.to_json(peaks, indent=0))


def total(compiles: Iterable[Compile]) -> float:
    """Seconds of compiling, one after the other."""
    return sum(each.seconds for each in compiles)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One compile, as a reader sees it."""

    object: str
    since: float
    """Seconds since 1970: when it began, or when it came to wait."""
    expected: int
    held: int | None = None
    """Bytes now; None for one that waits, or when nobody could say."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand at this moment."""

    jobs: int
    running: tuple[Shown, ...]
    waiting: tuple[Shown, ...]
    short: int
    """How many of those wait for memory, and not only for their turn."""
    available: int | None
    total: int | None
