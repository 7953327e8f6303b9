"""Where what is known about an environment is kept between two audits."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from typing import Any

from rekindle.core import codec
from rekindle.core.errors import NotWritable
from rekindle.model.environment import Environment


def kept_file(cache: Path | None, environment: Environment, name: str) -> Path | None:
    """A file about this environment in Rekindle's own cache folder."""
    if cache is None:
        return None
    # No hashlib: loading OpenSSL takes as long as everything else an unchanged answer needs.
    root = environment.root.encode("utf-8", "surrogateescape")
    return cache / f"{zlib.crc32(root):08x}{zlib.adler32(root):08x}-{name}.json"


def stamp_of(status: os.stat_result) -> int:
    """By what a file is known again. Its own time can be set to what it was, the time of its last change cannot."""
    return hash((status.st_mtime_ns, status.st_ctime_ns, status.st_ino))


def keep(file: Path, known: Any) -> None:
    """For the next time. A full disk or a home that nobody may write to is no reason against an answer."""
    from rekindle.core import files

    try:
        files.write_bytes(file, codec.to_json(known, indent=0).encode())
    except NotWritable:
        # What is older than what was just read would be taken for it.
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
