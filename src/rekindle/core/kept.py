"""What was read of files, kept in the cache for the next time."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from typing import Any

from rekindle.core import codec
from rekindle.core.errors import NotWritable


def kept_file(cache: Path | None, about: str, name: str) -> Path | None:
    """A file in the cache about a folder or file."""
    if cache is None:
        return None
    # No hashlib: loading OpenSSL takes as long as everything else an unchanged answer needs.
    path = about.encode("utf-8", "surrogateescape")
    return cache / f"{zlib.crc32(path):08x}{zlib.adler32(path):08x}-{name}.json"


def stamp_of(status: os.stat_result) -> int:
    """By what a file is known again. Its own time can be set to what it was, the time of its last change cannot."""
    return hash((status.st_mtime_ns, status.st_ctime_ns, status.st_ino))


def keep(file: Path | None, known: Any) -> None:
    """For the next time. A full disk or a home that nobody may write to is no reason against an answer."""
    if file is None:
        return
    from rekindle.core import files

    try:
        files.write_bytes(file, codec.to_json(known, indent=0).encode())
    except NotWritable:
        # What is older than what was just read would be taken for it.
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
