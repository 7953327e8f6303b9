"""Writes an observed table: one row a line, so that a change of one fact is a change of one line."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

OBSERVED = Path(__file__).parents[2] / "src" / "rekindle" / "knowledge" / "observed"


def today() -> str:
    return date.today().isoformat()


def render(table: dict[str, list[dict[str, Any]]]) -> str:
    parts = []
    for key, rows in table.items():
        body = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in rows)
        parts.append(f"  {json.dumps(key)}: [\n{body}\n  ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read(name: str) -> dict[str, list[dict[str, Any]]]:
    table: dict[str, list[dict[str, Any]]] = json.loads((OBSERVED / f"{name}.json").read_text(encoding="utf-8"))
    return table


def write(name: str, table: dict[str, list[dict[str, Any]]]) -> None:
    """Write the table, keeping the date of every row whose facts did not change: a diff shows only news."""
    exists = (OBSERVED / f"{name}.json").exists()
    old = {_facts(row): row for rows in read(name).values() for row in rows} if exists else {}
    kept = {key: [old.get(_facts(row), row) for row in rows] for key, rows in table.items()}
    (OBSERVED / f"{name}.json").write_text(render(kept), encoding="utf-8", newline="\n")


def _facts(row: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in row.items() if key != "observed_at"}, sort_keys=True)
