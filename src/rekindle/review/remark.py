"""One thing that is wrong in a script, at its line: as a rule raises it, and as a remark with its text."""

from __future__ import annotations

import msgspec

from rekindle.core.findings import Finding


class Remark(Finding, frozen=True, kw_only=True):
    """A finding with its place. FAIL: it stops the build or makes it useless. WARN: it may. PASS: it changes nothing.

    `corrected` is the line as it should read; empty means that the line should go; None that a person must decide.
    `certain`: `--fix` may write it. `more` are the lines that change with it, as they should read.
    """

    line: int
    text: str
    corrected: str | None = None
    certain: bool = False
    more: dict[int, str] = msgspec.field(default_factory=dict)


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """`corrected` is the line as it should read, empty when it should go. `certain`: `--fix` may write it.

    `more` are further lines with the same fault, as they should read.
    """

    rule: str
    line: int
    fields: dict[str, str] = {}
    corrected: str | None = None
    certain: bool = True
    source: str | None = None
    more: dict[int, str] = {}


def raised(
    rule: str,
    line: int,
    *,
    corrected: str | None = None,
    certain: bool = True,
    source: str | None = None,
    **fields: object,
) -> Raised:
    told = {name: str(value) for name, value in fields.items()}
    return Raised(rule=rule, line=line, fields=told, corrected=corrected, certain=certain, source=source)
