"""Deflate: ISA-L, which is several times as fast, where it is installed; else Python's zlib.

Both read the same data. What they write differs in size by a few percent and is read by everybody.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def engine() -> Any:
    """The module to use: `decompressobj`, `compressobj`, `crc32`, `error`. Imported when first asked for."""
    try:
        from isal import isal_zlib
    except ModuleNotFoundError:
        import zlib

        return zlib
    return isal_zlib
