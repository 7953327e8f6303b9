"""Releases of PyTorch that are older than the tables: the newest CUDA that each was published with."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided


class EarlyRelease(Row, frozen=True, kw_only=True):
    """Every release below `below`, and not below the row before it."""

    below: Version
    newest_cuda: Version


class _Releases(msgspec.Struct, frozen=True, kw_only=True):
    release: tuple[EarlyRelease, ...]


@cached
def _rows() -> tuple[EarlyRelease, ...]:
    return tuple(sorted(decided("early_releases", _Releases).release, key=lambda row: row.below))


def newest_cuda(torch: Version) -> Version | None:
    """The newest CUDA that an early release was published with; None for one that the tables have."""
    return next((row.newest_cuda for row in _rows() if torch < row.below), None)
