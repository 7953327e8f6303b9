"""The DLLs that a Windows program names in its data: what it loads by name stands in no import table.

A name is no proof of a call. Needs Python alone: a build script carries this file along.
"""

from __future__ import annotations

from collections.abc import Iterable

# Constants lie in these sections. What resources say of the file itself, and code, are left out.
DATA_SECTIONS = (".rdata", ".data")
_ENDS = ((b".dll\0", 1), (b".DLL\0", 1), (b".\0d\0l\0l\0\0\0", 2), (b".\0D\0L\0L\0\0\0", 2))
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.")
_LONGEST = 64
_MOST = 4096


class DllNames:
    """Collects the names, in small letters, from those pieces of a file that lie in `ranges`."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.found: set[str] = set()
        self._ranges = tuple(ranges)
        self._next, self._tail = 0, b""

    def look(self, at: int, data: bytes) -> None:
        """One piece of the file, from the place `at` on; pieces come in order."""
        for begin, end in self._ranges:
            first, last = max(begin, at), min(end, at + len(data))
            if first < last:
                self._piece(first, data[first - at : last - at])

    def beside(self, linked: Iterable[str]) -> tuple[str, ...]:
        """The names but for those that are linked. Packers give a library a longer name and leave the old one there."""
        own = {name.lower() for name in linked}
        renamed = {name.rpartition("-")[0] + ".dll" for name in own}
        return tuple(sorted(self.found - own - renamed))

    def _piece(self, at: int, data: bytes) -> None:
        self._tail = (self._tail if at == self._next else b"\0\0") + data
        self._next = at + len(data)
        for end, width in _ENDS:
            hit = self._tail.find(end)
            while hit >= 0 and len(self.found) < _MOST:
                begin = self._begin(self._tail, hit, width)
                if begin < hit:
                    self.found.add(self._tail[begin : hit + 4 * width : width].decode("ascii").lower())
                hit = self._tail.find(end, hit + 1)
        self._tail = self._tail[-2 * _LONGEST - 16 :]

    def _begin(self, data: bytes, hit: int, width: int) -> int:
        """Where the text begins that ends here: after a zero. One that begins with anything else is no name."""
        begin = hit
        while begin >= width and hit - begin < _LONGEST * width and data[begin - width] in _LETTERS:
            if width == 2 and data[begin - 1]:
                break
            begin -= width
        return begin if begin >= width and not any(data[begin - width : begin]) else hit
