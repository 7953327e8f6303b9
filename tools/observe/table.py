"""Writes an observed table: one row a line, so that a change of one fact is a change of one line."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rekindle.core import codec
from rekindle.knowledge import keys, tables
from rekindle.knowledge.gpu.gpu_code import GpuCode
from tools.observe import difference

Table = dict[str, list[dict[str, Any]]]
Targets = dict[str, dict[str, dict[str, int]]]
"""A number for each file of a build: by target, folder and file."""
KNOWLEDGE = Path(
    os.environ.get("REKINDLE_OBSERVE_TABLES") or Path(__file__).parents[2] / "src" / "rekindle" / "knowledge"
)
"""Where the tables are written; a rehearsal names a copy."""


def place(name: str) -> Path:
    """The table's file in its room."""
    known = next((path for path in keys.KEYS if path.rpartition("/")[2] == name), None)
    return KNOWLEDGE / f"{known}.json" if known else KNOWLEDGE / tables.relative_path(f"{name}.json")


def gpu_code(codes: Sequence[GpuCode]) -> list[dict[str, Any]]:
    """Rows of GPU code count entries; the bytes of each target are for reports."""
    rows = [codec.to_builtins(code) for code in codes]
    return [{key: value for key, value in row.items() if key != "sizes"} for row in rows]


def today() -> str:
    return date.today().isoformat()


def render(table: dict[str, list[dict[str, Any]]]) -> str:
    parts = []
    for key, rows in table.items():
        body = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in rows)
        parts.append(f"  {json.dumps(key)}: [\n{body}\n  ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read(name: str) -> dict[str, list[dict[str, Any]]]:
    table: dict[str, list[dict[str, Any]]] = json.loads(place(name).read_text(encoding="utf-8"))
    return table


def write(name: str, table: dict[str, list[dict[str, Any]]]) -> None:
    """Write the table, keeping the date of every row whose facts did not change: a diff shows only news."""
    exists = place(name).exists()
    old = {_facts(row): row for rows in read(name).values() for row in rows} if exists else {}
    kept = {key: [old.get(_facts(row), row) for row in rows] for key, rows in table.items()}
    place(name).write_text(render(kept), encoding="utf-8", newline="\n")


def propose(
    name: str, new: Table, *, accept: bool, dry: bool = False, replaced: difference.Replaced = difference.never
) -> int:
    """Show what changed and write it unless `dry`; 3, and nothing written, where a person must look first.

    `replaced` says of a row that is gone whether a newer one took its place.
    """
    relative = place(name).relative_to(KNOWLEDGE).as_posix()
    found = difference.compare(relative, read(name) if place(name).exists() else {}, new, replaced)
    print(f"{name}: {found}", flush=True)
    if found.stops and not accept:
        print("stopped, nothing written; look at these and run it again with --accept:", *found.stops, sep="\n  ")
        return 3
    if not dry:
        write(name, new)
    return 0


def nothing_read(name: str, read: int) -> None:
    """A script that keeps the rows it could not read says how many it did read; none is no success."""
    if not read:
        raise SystemExit(f"nothing of `{name}` could be read; nothing was written")
    print(f"{name}: {read} rows read anew", file=sys.stderr, flush=True)


def _facts(row: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in row.items() if key != "observed_at"}, sort_keys=True)


def targets() -> Targets:
    return defaultdict(lambda: defaultdict(dict))


def write_builds(name: str, words: Sequence[str], measured: Callable[[Path], Targets]) -> None:
    """The table of what was measured of whole builds. `words`: ID, file and source of one after the other; a build
    that is named anew replaces the row of its ID, the others stay.
    """
    there = place(name).exists()
    kept = {row["id"]: row for row in read(name)["builds"]} if there else {}
    for build, path, source in zip(words[::3], words[1::3], words[2::3], strict=True):
        found = {target: dict(folders) for target, folders in measured(Path(path)).items()}
        about = {"id": build, "source": source, "observed_at": today(), "evidence": "binary"}
        kept[build] = {**about, "targets": found}
        print(f"{build}: {sum(len(files) for folders in found.values() for files in folders.values())} files")
    write(name, {"builds": list(kept.values())})
