"""What changed between two versions of a table, row by row, and what of it a person must look at first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rekindle.knowledge import keys

Table = dict[str, list[dict[str, Any]]]
Replaced = Callable[[dict[str, Any], list[dict[str, Any]]], bool]
_ABOUT = ("source", "observed_at", "evidence")


@dataclass
class Difference:
    """`stops` are changes that are more often a fault of the script than news: a row gone, another capability."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        marked = (("+", self.added), ("~", self.changed), ("-", self.removed))
        lines = [f"{mark} {line}" for mark, rows in marked for line in rows]
        return "\n".join([*lines, f"{len(self.added)} new, {len(self.changed)} changed, {len(self.removed)} gone"])


def never(_row: dict[str, Any], _new: list[dict[str, Any]]) -> bool:
    """No row takes another's place."""
    return False


def compare(relative: str, old: Table, new: Table, replaced: Replaced = never) -> Difference:
    found = Difference()
    for name, key in keys.of_table(relative, {**old, **new}).items():
        before = {keys.value(row, key): row for row in old.get(name, [])}
        after = {keys.value(row, key): row for row in new.get(name, [])}
        for value, row in after.items():
            told = keys.words(row, key)
            if value not in before:
                found.added.append(told)
            elif fields := _fields(before[value], row):
                found.changed.append(f"{told}: {'; '.join(fields)}")
                if any(part.startswith("capability ") for part in fields):
                    found.stops.append(f"another capability: {told}")
        for value, row in before.items():
            if value not in after:
                found.removed.append(keys.words(row, key))
                if not replaced(row, new.get(name, [])):
                    found.stops.append(f"gone: {keys.words(row, key)}")
    found.stops += _moved(found)
    return found


def _fields(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    # As they are written: a tuple of a script is a list of the file.
    before, after = json.loads(json.dumps(before)), json.loads(json.dumps(after))
    names = [name for name in {**before, **after} if name not in _ABOUT and before.get(name) != after.get(name)]
    return [f"{name} {_short(before.get(name))} -> {_short(after.get(name))}" for name in names]


def _moved(found: Difference) -> list[str]:
    """A capability that is part of the key changes by one row going and one coming."""
    names = {line.partition(", capability ")[0] for line in found.added if ", capability " in line}
    return [f"another capability: {line}" for line in found.removed if line.partition(", capability ")[0] in names]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
