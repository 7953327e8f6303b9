"""How much work a file may cause: counted, not timed, so that the same file gets the same answer everywhere.

A reader of formats follows numbers that somebody else wrote: four thousand lists of four thousand names can lie in
sixteen bytes. Every source of bytes therefore has a budget that grows with its size. One step is about three
microseconds of work, so a file costs at most about a second, and another one for every 10 MB; what is kept in memory is
counted as well. Real files need a small part of either.
"""

from __future__ import annotations

from rekindle.core.errors import BadInput

_STEPS, _BYTES_PER_STEP = 250_000, 30
_KEPT = 32 << 20
_HELD = 40 << 20
# A step's worth of plain reading.
_READ = 512


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
