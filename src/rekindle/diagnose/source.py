"""Where a log comes from: a file, standard input, or a folder with logs in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rekindle.core.errors import NotFound
from rekindle.diagnose.answer import Diagnosis
from rekindle.diagnose.diagnosis import diagnose_blocks, diagnose_file
from rekindle.diagnose.facts import Facts
from rekindle.diagnose.scan import BLOCK

_LOGS = frozenset({".log", ".txt", ".out", ".err"})
# CMake's own records of its probes: full of failures that are none.
_PROBES = frozenset({"CMakeError.log", "CMakeOutput.log", "CMakeCache.txt", "CMakeLists.txt", "requirements.txt"})
_MOST = 500


class Diagnoses(msgspec.Struct, frozen=True, kw_only=True):
    """The answers for a folder, one per log, in the order of their names."""

    schema: str = "rekindle.diagnoses/1"
    source: str
    logs: tuple[Diagnosis, ...]


def diagnose(where: str, *, known: Facts | None = None) -> Diagnosis | Diagnoses:
    """`where` is a file, a folder, or `-` for what is piped in."""
    if where == "-":
        return diagnose_blocks(_piped(), known=known, source="standard input")
    path = Path(where)
    if not path.is_dir():
        return diagnose_file(path, known=known)
    files = logs_below(path)
    if not files:
        message = f"there are no logs in `{path}`"
        raise NotFound(message, hint="logs end in .log, .txt, .out or .err; name a file of another ending itself")
    return Diagnoses(source=str(path), logs=tuple(diagnose_file(file, known=known) for file in files))


def logs_below(folder: Path) -> list[Path]:
    found = (
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in _LOGS and path.name not in _PROBES and path.is_file() and not path.is_symlink()
    )
    return sorted(found)[:_MOST]


def _piped() -> Iterator[bytes]:
    while block := sys.stdin.buffer.read(BLOCK):
        yield block
