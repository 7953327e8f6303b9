"""One edit on the bytes of one file: does its text stand there, was it made already, is it fixed upstream?

Works on bytes, so that encoding, byte-order mark and everything outside the edit survive; a line end in the patch
matches the file's own, and what is put in gets the file's. Needs Python alone: a build script carries this file along.
"""

from __future__ import annotations

import difflib
import re
from enum import Enum
from typing import NamedTuple

from rekindle.knowledge.torch.patches import Edit


class Found(Enum):
    PENDING = "pending"
    APPLIED = "applied"
    FIXED = "fixed"
    MISMATCH = "mismatch"


class EditOutcome(NamedTuple):
    """What an edit finds; `data` is the file after it, `reason` says what is wrong with a mismatch."""

    found: Found
    data: bytes
    reason: str = ""


def make(data: bytes, edit: Edit) -> EditOutcome:
    before = [match.span() for match in _pattern(edit.before).finditer(data)]
    after = [match.span() for match in _pattern(edit.after).finditer(data)] if edit.after else []
    # `after` may hold `before` (a line put beside it) or the reverse (a word taken out): the larger text wins.
    pending = [span for span in before if not any(_within(span, other) for other in after)]
    made = [span for span in after if not any(_within(span, other) for other in before)]
    if len(pending) == edit.count and not made:
        return EditOutcome(found=Found.PENDING, data=_replaced(data, pending, edit.after))
    if not pending and len(made) == edit.count:
        return EditOutcome(found=Found.APPLIED, data=data)
    if not pending and not made and edit.fixed and _pattern(edit.fixed).search(data):
        return EditOutcome(found=Found.FIXED, data=data)
    return EditOutcome(found=Found.MISMATCH, data=data, reason=_explain(data, edit, pending, made))


def _within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1] and inner != outer


def _pattern(text: str) -> re.Pattern[bytes]:
    """The text as it may stand in a file of either kind of line end."""
    lines = text.encode("utf-8").split(b"\n")
    return re.compile(rb"\r?\n".join(re.escape(line) for line in lines))


def _replaced(data: bytes, spans: list[tuple[int, int]], text: str) -> bytes:
    parts: list[bytes] = []
    done = 0
    for start, end in spans:
        parts += [data[done:start], text.encode("utf-8").replace(b"\n", _line_end(data, start))]
        done = end
    return b"".join([*parts, data[done:]])


def _line_end(data: bytes, at: int) -> bytes:
    """How the line at this place ends, or else the one before it."""
    newline = data.find(b"\n", at)
    if newline < 0:
        newline = data.rfind(b"\n", 0, at)
    return b"\r\n" if newline > 0 and data[newline - 1 : newline] == b"\r" else b"\n"


def _explain(data: bytes, edit: Edit, pending: list[tuple[int, int]], made: list[tuple[int, int]]) -> str:
    if pending or made:
        lines = ", ".join(str(data.count(b"\n", 0, start) + 1) for start, _ in sorted(pending + made)[:8])
        counts = f"{len(pending)} times unpatched and {len(made)} times patched"
        return f"its text stands {counts} (line {lines}), not {edit.count}"
    wanted = next((line.strip() for line in edit.before.splitlines() if line.strip()), "")
    number, nearest = _nearest(data, wanted)
    where = f"; the nearest is line {number}: `{nearest}`" if nearest else "; nothing there is near it"
    return f"it does not hold `{wanted[:100]}`{where}"


def _nearest(data: bytes, wanted: str) -> tuple[int, str]:
    best, number, text = 0.4, 0, ""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    for index, raw in enumerate(data[: 4 * 1024 * 1024].splitlines()[:50_000], 1):
        line = raw.strip().decode("utf-8", "replace")[:300]
        if not line:
            continue
        matcher.set_seq1(line)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, number, text = matcher.ratio(), index, line[:100]
    return number, text
