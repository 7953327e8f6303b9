"""What a rule found: which row of the table, on which line, with the words to fill in."""

from __future__ import annotations

import msgspec


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
    return Raised(
        rule=rule,
        line=line,
        fields={name: str(value) for name, value in fields.items()},
        corrected=corrected,
        certain=certain,
        source=source,
    )
