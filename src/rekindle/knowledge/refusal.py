"""Says which row and field of a table cannot be read, and shows a value that can."""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import codec
from rekindle.core.errors import BadInput


def of(table: Any, example: Any, kind: Any, path: Path, error: BadInput) -> BadInput:
    """The error for the first bad row of `table`; `example` is a table of the same kind that is right."""
    if isinstance(table, dict):
        for name, row_kind in _row_kinds(kind, table).items():
            rows = table.get(name)
            for number, row in enumerate(rows if isinstance(rows, list) else [], start=1):
                said = _complaint(row, row_kind)
                if said is not None:
                    right = example.get(name) if isinstance(example, dict) else None
                    return _refused(path, f"row {number} of `{name}`{_called(row)}", said, row, right)
    return BadInput(f"`{path}`: {_plain(error)}", hint="compare it with the built-in table of the same name")


def _refused(path: Path, where: str, said: str, row: Any, right: Any) -> BadInput:
    field = _field(said)
    message = f"`{path}`: {where}: " + (f"field `{field}`: " if field else "") + said.partition(" - at `")[0]
    good = next((one for one in right or () if isinstance(one, dict) and one.get(field) is not None), None)
    if field and good is not None:
        hint = f"a row that works has `{codec.to_json(field, indent=0)}: {_short(good[field])}`"
    elif isinstance(row, dict) and right:
        hint = f"a row that works: `{_short(right[0])}`"
    else:
        hint = "compare it with the built-in table of the same name"
    return BadInput(message, hint=hint)


def _field(said: str) -> str:
    """`Object missing required field `chip`` and `… - at `$.capability`` both name the field."""
    named = re.search(r"required field `(\w+)`", said) or re.search(r"at `\$\.(\w+)", said)
    named = named or re.search(r"unknown field `(\w+)`", said)
    return named[1] if named else ""


def _complaint(row: Any, kind: Any) -> str | None:
    try:
        codec.from_builtins(row, kind, name="row")
    except BadInput as error:
        return _plain(error)
    return None


def _plain(error: BadInput) -> str:
    return str(error).partition(" cannot be read: ")[2] or str(error)


def _called(row: Any) -> str:
    """The row's own name, where it has one."""
    if not isinstance(row, dict):
        return ""
    name = next((row[field] for field in ("id", "name", "version", "wheel", "minor", "torch") if row.get(field)), None)
    return f" ({str(name)[:60]})" if name else ""


def _short(value: Any) -> str:
    text = codec.to_json(value, indent=0)
    return text if len(text) <= 300 else f"{text[:297]}..."


def _row_kinds(kind: Any, table: dict[str, Any]) -> dict[str, Any]:
    """The row type of each list in a table: of `dict[str, tuple[Gpu, ...]]`, or of a struct with such fields."""
    if typing.get_origin(kind) is dict:
        return dict.fromkeys(table, typing.get_args(typing.get_args(kind)[1])[0])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return {name: typing.get_args(hint)[0] for name, hint in hints.items() if typing.get_origin(hint) is tuple}
    return {}
