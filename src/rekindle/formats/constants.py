"""Texts in the read-only data of a library that tell what it was compiled against."""

from __future__ import annotations

from collections.abc import Iterator

from rekindle.formats import elf, pe
from rekindle.formats.access import Bytes, blocks

# NumPy's headers put the name of the module they import into whatever includes them; 2.0 renamed it.
_NUMPY_2 = b"numpy._core._multiarray_umath"
_NUMPY_1 = b"numpy.core._multiarray_umath"
_READABLE, _WRITABLE, _EXECUTABLE = 4, 2, 1
_MOST = 96 << 20


def numpy_abi(source: Bytes) -> str | None:
    """`1` or `2`: the NumPy whose headers a module was compiled with; None when it uses none or cannot be searched.

    Headers of NumPy 2 leave both names behind, because what they make runs on NumPy 1 too.
    """
    old = False
    tail = b""
    for data in _constants(source):
        window = tail + data
        if _NUMPY_2 in window:
            return "2"
        old = old or _NUMPY_1 in window
        tail = window[-len(_NUMPY_2) :]
    return "1" if old else None


def _constants(source: Bytes) -> Iterator[bytes]:
    for offset, size in _regions(source):
        yield from blocks(source, offset, min(offset + size, source.size))


def _regions(source: Bytes) -> list[tuple[int, int]]:
    head = source.read(0, 4)
    if head[:4] == elf.MAGIC:
        loaded = [s for s in elf.segments(source) if s.loaded]
        plain = [(s.offset, s.size) for s in loaded if not s.flags & (_WRITABLE | _EXECUTABLE)]
        # Old linkers put constants and code into one segment.
        found = plain if len(plain) > 1 else [(s.offset, s.size) for s in loaded if not s.flags & _WRITABLE]
    elif head[:2] == pe.MAGIC:
        found = [(s.offset, s.stored) for s in pe.sections(source) if s.name == ".rdata"]
    else:
        found = []
    return found if sum(size for _, size in found) <= _MOST else []
