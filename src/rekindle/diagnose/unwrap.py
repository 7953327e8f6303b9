"""Pastes from a console whose lines were cut at its width: put together again."""

from __future__ import annotations

from collections import Counter

import msgspec

from rekindle.diagnose.scan import PREFILTER, KeptLines, LogLine

_NARROW, _WIDE = 40, 300
# Fewer full lines than this are chance.
_FULL = 2


def unwrapped(kept: KeptLines) -> KeptLines | None:
    """The same log with cut lines joined; None when it does not look cut. A joined line has its first part's number."""
    widths = Counter(len(line.raw) for line in kept.lines)
    width = max(widths, default=0)
    if not _NARROW <= width <= _WIDE or widths[width] < _FULL or kept.dropped:
        return None
    lines: list[LogLine] = []
    grown = False
    for line in kept.lines:
        if grown and lines and line.number > lines[-1].number:
            last = lines[-1]
            text = last.text + line.raw.rstrip()
            hit = last.hit or PREFILTER.search(text.encode("utf-8", "replace")) is not None
            lines[-1] = msgspec.structs.replace(last, raw=last.raw + line.raw, text=text, hit=hit)
        else:
            lines.append(line)
        grown = len(line.raw) == width
    return msgspec.structs.replace(kept, lines=tuple(lines))
