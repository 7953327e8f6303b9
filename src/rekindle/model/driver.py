"""A driver: its version, and whose numbers it counts by."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version


class Driver(msgspec.Struct, frozen=True):
    """`counting` is `linux` or `windows`; inside WSL the driver is that of Windows."""

    version: Version
    counting: str

    def __str__(self) -> str:
        return str(self.version)
