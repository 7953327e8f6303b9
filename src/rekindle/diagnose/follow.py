"""A log that is still being written: read as it grows, answered as soon as something is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rekindle.core.errors import NotFound
from rekindle.diagnose.answer import Diagnosis, LogOutcome
from rekindle.diagnose.diagnosis import answer
from rekindle.diagnose.facts import Facts
from rekindle.diagnose.scan import BLOCK, LogScanner

_PAUSE = 0.5


def follow(
    path: Path,
    *,
    known: Facts | None = None,
    idle: float = 60.0,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Diagnosis]:
    """The diagnosis each time it changes. Ends when nothing was written for `idle` seconds.

    A build that goes on after a failure is still followed: other jobs may fail too. A log that is cut short and begun
    anew (another build into the same file) is read from its beginning.
    """
    if not path.exists():
        raise NotFound.path(path, hint="start the build first, or name the file it writes to")
    scanner, place, last, seen = LogScanner(), 0, clock(), ("", 0)
    while True:
        size = path.stat().st_size
        if size < place:
            scanner, place = LogScanner(), 0
        if size > place:
            place = _read(path, place, scanner)
            last = clock()
            found = answer(scanner.kept(), known=known, source=str(path))
            now = (found.causes[0].label if found.causes else found.outcome.value, len(found.causes))
            if now != seen and found.outcome is not LogOutcome.UNKNOWN:
                seen = now
                yield found
        elif clock() - last >= idle:
            yield answer(scanner.finish(), known=known, source=str(path))
            return
        pause(_PAUSE)


def _read(path: Path, place: int, scanner: LogScanner) -> int:
    with path.open("rb") as stream:
        stream.seek(place)
        while block := stream.read(BLOCK):
            scanner.feed(block)
            place += len(block)
    return place
