"""How much work a file may cause: counted, not timed, so that the same file gets the same answer everywhere.

A reader of formats follows numbers that somebody else wrote: four thousand lists of four thousand names can lie in
sixteen bytes. Every source of bytes therefore has a budget that grows with its size. One step is about three
microseconds of work, so a file costs at most about a second, and another one for every 10 MB; what is kept in memory is
counted as well. Real files need a small part of either.
"""

from __future__ import annotations

from rekindle.core.errors import BadInput

_STEPS, _BYTES_PER_STEP = 200_000, 30
_KEPT = 32 << 20
_HELD = 40 << 20
# A step's worth of plain reading.
_READ = 512
_MOST_MEMBERS = 200_000
_MOST_FOLDERS = 20_000
# Deflate reaches 1,032:1 on nothing but zeros; the most a real library was seen to reach is 12:1.
_RATIO, _SPARE = 50, 64 << 20


class Budget:
    """What reading one file may cost. `spend` counts work, `keep` what stays in memory as part of the answer."""

    __slots__ = ("_kept", "_steps", "held", "name")

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self._steps = _STEPS + size // _BYTES_PER_STEP
        self._kept = _KEPT + size
        self.held = _HELD + size
        """The most bytes that may be held at once while a compressed member is read."""

    def spend(self, steps: int = 1) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise self._spent("work")

    def read(self, size: int) -> None:
        """One read of that many bytes."""
        self.spend(1 + size // _READ)

    def keep(self, size: int) -> None:
        self._kept -= size
        if self._kept < 0:
            raise self._spent("memory")

    def _spent(self, what: str) -> BadInput:
        message = f"`{self.name}` is malformed: reading it takes more {what} than any real file of its size"
        return BadInput(message, hint="do not use this file; download or build it again")


class Unpacking:
    """What an archive may unpack to: counted member by member, by what its headers say and by what really came out."""

    __slots__ = ("_folders", "_left", "_members", "_most", "_most_bytes", "_most_folders", "name", "packed")

    def __init__(self, name: str, packed: int, *, members: int = _MOST_MEMBERS, most: int | None = None) -> None:
        self.name = name
        self.packed = packed
        self._most = self._members = members
        self._left = self._most_bytes = most or _SPARE + _RATIO * packed
        self._folders: set[str] = set()
        # Who says how many bytes are real says the same of members, and folders are among them.
        self._most_folders = max(_MOST_FOLDERS, members if most else 0)

    def folders(self, name: str) -> None:
        """The folders of one more name: a short one may ask for fifty, and a small archive for a million."""
        folder = name.rpartition("/")[0]
        while folder and folder not in self._folders:
            self._folders.add(folder)
            self.member()
            folder = folder.rpartition("/")[0]
        if len(self._folders) > self._most_folders:
            message = f"`{self.name}` has more than {self._most_folders:,} folders"
            raise BadInput(message, hint="do not unpack this file; no real archive of this kind has as many")

    def member(self, size: int = 0) -> None:
        """One more member of that many bytes. Call `more` instead where the size is not known before."""
        self._members -= 1
        if self._members < 0:
            message = f"`{self.name}` has more than {self._most:,} members"
            raise BadInput(message, hint="do not unpack this file; no real archive of this kind has as many")
        self.more(size)

    def more(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            message = f"`{self.name}` is an archive bomb: {self.packed:,} bytes unpack to over {self._most_bytes:,}"
            raise BadInput(message, hint="do not unpack or install this file")
