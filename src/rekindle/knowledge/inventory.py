"""What the tables hold, how old they are and how sure, and whether an answer should say that it may be out of date."""

from __future__ import annotations

from collections import Counter
from datetime import date

import msgspec

from rekindle.knowledge import keys, tables

STALE_AFTER = 90
"""Days after which an answer says how old the data is."""


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """One table: its rows, the days of the oldest and the newest, and how many rows each kind of evidence has."""

    table: str
    rows: int
    oldest: str
    newest: str
    evidence: dict[str, int]
    updated: bool


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle knowledge`."""

    schema: str = "rekindle.knowledge/1"
    newest: str
    update: str | None
    """The day of the update in use; None: only the built-in tables are."""
    stale: str | None
    tables: tuple[TableState, ...]


def knowledge(today: date) -> Knowledge:
    from rekindle.knowledge import updates

    in_use = updates.installed()
    changed = set(in_use.tables) if in_use else set()
    found = tuple(state for name in tables.every() if (state := _state(name, name in changed)))
    newest = max(state.newest for state in found)
    return Knowledge(newest=newest, update=str(in_use.made_at) if in_use else None, stale=stale(today), tables=found)


def stale(today: date) -> str | None:
    """A line for an answer that leans on data older than 90 days; None: it is fresh."""
    newest = max(row["observed_at"] for row in tables.plain("torch/torch_releases.json")["releases"])
    days = (today - date.fromisoformat(newest)).days
    if days <= STALE_AFTER:
        return None
    return f"Rekindle's data on PyTorch is {days} days old ({newest}); newer releases may exist"


def _state(name: str, updated: bool) -> TableState | None:
    table = tables.plain(name)
    lists = [table[key] for key in keys.of_table(name, table) if isinstance(table.get(key), list)]
    rows = [row for rows in lists for row in rows if isinstance(row, dict) and "observed_at" in row]
    if not rows:
        return None
    days = sorted(row["observed_at"] for row in rows)
    counted = Counter(row["evidence"] for row in rows)
    evidence = {kind.value: counted[kind.value] for kind in tables.Evidence if counted[kind.value]}
    return TableState(table=name, rows=len(rows), oldest=days[0], newest=days[-1], evidence=evidence, updated=updated)
