"""One thing that is wrong in a script, at its line."""

from __future__ import annotations

import msgspec

from rekindle.core.findings import State


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """FAIL: it cannot work. WARN: it does nothing, or goes wrong one day. PASS: true, and changes nothing.

    `corrected` is the line as it should read; empty means that the line should go; None that a person must decide.
    """

    id: str
    state: State
    line: int
    text: str
    found: str
    why: str
    source: str
    corrected: str | None = None
