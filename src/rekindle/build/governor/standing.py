"""How a governed build stands at this moment, for whoever shows it."""

from __future__ import annotations

import msgspec


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One compile, as a reader sees it."""

    object: str
    since: float
    """Seconds since 1970: when it began, or when it came to wait."""
    expected: int
    held: int | None = None
    """Bytes now; None for one that waits, or when nobody could say."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand at this moment."""

    jobs: int
    running: tuple[Shown, ...]
    waiting: tuple[Shown, ...]
    short: int
    """How many of those wait for memory, and not only for their turn."""
    available: int | None
    total: int | None


def size_text(size: int) -> str:
    """`812 MB`, `3.42 GB`."""
    return f"{size / 1024**3:.2f} GB" if size >= 1024**3 else f"{size / 1024**2:.0f} MB"
