"""One thing that is wrong in a script, at its line."""

from __future__ import annotations

from rekindle.core.findings import Finding


class Remark(Finding, frozen=True, kw_only=True):
    """A finding with its place. FAIL: it stops the build or makes it useless. WARN: it may. PASS: it changes nothing.

    `corrected` is the line as it should read; empty means that the line should go; None that a person must decide.
    `certain`: `--fix` may write it.
    """

    line: int
    text: str
    corrected: str | None = None
    certain: bool = False
