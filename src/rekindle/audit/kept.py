"""Where what is known about an environment is kept between two audits."""

from __future__ import annotations

import zlib
from pathlib import Path

from rekindle.model.environment import Environment


def kept_file(cache: Path | None, environment: Environment, name: str) -> Path | None:
    """A file about this environment in Rekindle's own cache folder."""
    if cache is None:
        return None
    # No hashlib: loading OpenSSL takes as long as everything else an unchanged answer needs.
    root = environment.root.encode("utf-8", "surrogateescape")
    return cache / f"{zlib.crc32(root):08x}{zlib.adler32(root):08x}-{name}.json"
