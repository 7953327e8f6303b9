"""A journal: one JSON object per line, appended. A line that a power cut left half written is cut off."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from rekindle.core import codec, files
from rekindle.core.errors import BadInput, NotWritable

T = TypeVar("T")


def read(path: Path, kind: type[T]) -> list[T]:
    """The entries of a journal; none when there is no file yet."""
    found = []
    lines = files.read_bytes(path, limit=1 << 30).split(b"\n") if path.exists() else []
    for number, line in enumerate(lines, 1):
        if not line.strip(b"\0 \r"):
            continue
        try:
            found.append(codec.from_json(line, kind, name=f"`{path}`, line {number}"))
        except BadInput:
            # Only the last line can be torn. Anything else was not written by us, and is not to be built upon.
            if number < len(lines) - 1:
                raise
    return found


def append(path: Path, entry: Any, *, hint: str, settled: bool = True) -> None:
    """Write one entry; with `settled` it outlives a power cut once this returns."""
    line = codec.to_json(entry, indent=0).encode("utf-8") + b"\n"
    if files.is_link(path):
        raise NotWritable(f"the journal `{path}` is a link", hint="remove it: a journal is a file of its own")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as stream:
            size = stream.tell()
            stream.seek(max(0, size - 1))
            if size and stream.read(1) != b"\n":
                stream.seek(0)
                stream.truncate(stream.read(size).rfind(b"\n") + 1)
            stream.write(line)
            if settled:
                stream.flush()
                os.fsync(stream.fileno())
    except OSError as error:
        raise not_written(path, error, hint) from error


def not_written(path: Path, error: OSError, hint: str) -> NotWritable:
    return NotWritable(f"cannot write the journal `{path}`: {files.describe_error(error)}", hint=hint)
