"""Where a log comes from: a file, standard input, a folder with logs in it, or a file that is still being written."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import files
from rekindle.core.codec import JsonAnswer
from rekindle.core.errors import BadInput, ChecksFailed, NotFound, Unverified
from rekindle.diagnose.answer import Diagnosis, LogOutcome
from rekindle.diagnose.answer import shown as shown_one
from rekindle.diagnose.diagnosis import answer, checked, diagnose_blocks, diagnose_file
from rekindle.diagnose.facts import Facts
from rekindle.diagnose.scan import BLOCK, LogScanner

Watch = Callable[[list[Path]], AbstractContextManager[Any]]
_LOGS = (".log", ".txt", ".out", ".err", ".log.gz", ".txt.gz", ".out.gz", ".err.gz")
# CMake's own records of its probes: full of failures that are none.
_PROBES = frozenset({"CMakeError.log", "CMakeOutput.log", "CMakeCache.txt", "CMakeLists.txt", "requirements.txt"})
_MOST = 500
_LONGEST_NAME, _WORDS = 250, 4


class Diagnoses(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    """The answers for a folder, one per log, in the order of their names."""

    schema: str = "rekindle.diagnoses/1"
    source: str
    logs: tuple[Diagnosis, ...]


def shown(answer: Diagnosis | Diagnoses) -> Diagnosis | Diagnoses:
    """The same without user names: what the command line prints and the library returns."""
    if isinstance(answer, Diagnoses):
        return msgspec.structs.replace(answer, logs=tuple(map(shown_one, answer.logs)))
    return shown_one(answer)


def is_message(given: str) -> bool:
    """Somebody typed or handed over what a program said, and no name of a file."""
    return "\n" in given.strip() or len(given) > _LONGEST_NAME or ": " in given


def is_typed(where: str) -> bool:
    """The same where files may be looked for: a sentence that is the name of none."""
    said = is_message(where) or where.strip().count(" ") >= _WORDS
    return said and (len(where) > _LONGEST_NAME or not Path(where).exists())


def diagnose(where: str, *, known: Facts | None = None, watch: Watch = nullcontext) -> Diagnosis | Diagnoses:
    """`where` is a file, a folder, `-` for standard input, or the message itself.

    `watch` is entered while files are read.
    """
    if is_typed(where):
        return diagnose_blocks([where.encode("utf-8", "replace")], known=known, source="what was typed")
    if where == "-":
        piped = iter(lambda: sys.stdin.buffer.read(BLOCK), b"")
        return diagnose_blocks(checked(piped, "standard input"), known=known, source="standard input")
    path = Path(where)
    if not path.is_dir():
        with watch([path]):
            return diagnose_file(path, known=known)
    found = logs_below(path)
    if not found:
        message = f"no logs in `{path}`"
        raise NotFound(
            message, hint="logs end in .log, .txt, .out or .err, also with .gz; name any other file directly"
        )
    with watch(found):
        return Diagnoses(source=str(path), logs=tuple(_one_of_many(file, known) for file in found))


def _one_of_many(file: Path, known: Facts | None) -> Diagnosis:
    """A file that cannot be read as a log is said to be one; the others are still answered."""
    try:
        return diagnose_file(file, known=known)
    except BadInput as error:
        return Diagnosis(source=str(file), outcome=LogOutcome.UNKNOWN, summary=str(error))


def exit_code(answer: Diagnosis | Diagnoses) -> int:
    """0: every log says that the work succeeded. 8: a cause was found. 9: no failure was recognised, nor success."""
    found = {each.outcome for each in (answer.logs if isinstance(answer, Diagnoses) else (answer,))}
    if LogOutcome.CAUSE in found:
        return ChecksFailed.exit_code
    return Unverified.exit_code if LogOutcome.UNKNOWN in found else 0


def logs_below(folder: Path) -> list[Path]:
    found = (
        Path(entry.path)
        for entry in files.below(folder)
        if entry.name.lower().endswith(_LOGS) and entry.name not in _PROBES and entry.is_file(follow_symlinks=False)
    )
    return sorted(found)[:_MOST]


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
            place = _grown(path, place, scanner)
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


def _grown(path: Path, place: int, scanner: LogScanner) -> int:
    with path.open("rb") as stream:
        stream.seek(place)
        while block := stream.read(BLOCK):
            scanner.feed(block)
            place += len(block)
    return place
