"""What people write, read into values: one reader for each kind of thing, used by every verb and every file."""

from __future__ import annotations

from rekindle.knowledge.gpu.names import WIDE


def plain(text: str) -> str:
    """In small letters and narrow ones, without the spaces around it."""
    return text.translate(WIDE).strip().lower()
