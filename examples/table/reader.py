"""Reads the file of `rekindle knowledge export --as table`: which PyTorch for this card, system, Python and driver.

    python reader.py table.json "GTX 1080 Ti" windows 3.12 566.36

No dependencies; copy it into your installer. The names are those of `rekindle gpu --list`, or a PCI id: 10de:1b06.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def find(table: dict[str, Any], card: str, system: str, python: str = "", driver: str = "") -> dict[str, Any]:
    """The answer for a card. `python` and `driver` empty: not known."""
    if table["schema"] != "rekindle.table/1":
        raise ValueError(f"this reader does not know {table['schema']}")
    by_python = table["classes"][_class(table, card)][system]
    if python not in by_python:
        raise KeyError(f"Python {python} is not in the table")
    steps = table["steps"][by_python[python]]
    row = steps[0][1]
    if driver:
        row = [number for first, number in steps[1:] if _numbers(first) <= _numbers(driver)][-1]
    return {key: _filled(table["marks"], value, card, driver) for key, value in table["rows"][row].items()}


def pip(answer: dict[str, Any]) -> list[list[str]]:
    """What pip is told, one list for each call; empty where nothing is ready-made."""
    if not answer.get("pins"):
        return []
    index = ["--index-url", answer["index"]] if "index" in answer else []
    first = [["install", answer["first"]]] if "first" in answer else []
    return [*first, ["install", *answer["pins"], *index]]


def _class(table: dict[str, Any], card: str) -> int:
    plain = card.strip().lower()
    for name in (plain, f"geforce {plain}", f"nvidia {plain}", plain.removeprefix("nvidia ")):
        if name in table["names"]:
            return int(table["names"][name])
    if plain.removeprefix("10de:") in table["pci"]:
        return int(table["pci"][plain.removeprefix("10de:")])
    raise KeyError(f"{card} is not in the table")


def _numbers(version: str) -> list[int]:
    """550.54.14 and 550.54.14.0 are the same driver."""
    parts = [int(part) for part in version.split(".")]
    return parts + [0] * (6 - len(parts))


def _filled(marks: dict[str, str], value: Any, card: str, driver: str) -> Any:
    if isinstance(value, list):
        return [_filled(marks, each, card, driver) for each in value]
    return value.replace(marks["card"], card).replace(marks["driver"], driver) if isinstance(value, str) else value


if __name__ == "__main__":
    try:
        found = find(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), *sys.argv[2:])
    except (KeyError, ValueError) as error:
        sys.exit(str(error.args[0]))
    print(json.dumps({**found, "pip": pip(found)}, indent=2))
