"""Is every pin of a printed command known to exist? Asked of the tables' rows, by none of the code that made it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import rekindle

TABLES = Path(rekindle.__file__).parent / "knowledge" / "torch"
_PIN = re.compile(r"(torch|torchvision|torchaudio)==([0-9.]+)(?:\+(\w+))?\Z")


@cache
def _rows(name: str, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((TABLES / name).read_text(encoding="utf-8"))[key]
    return found


def unknown(route: dict[str, Any], system: str, machine: str) -> list[str]:
    """What stands in the command and in no row; and a command that is not made of its pins."""
    pins = route["requirements"]
    line = next(command for command in route["commands"] if command.startswith("pip install torch"))
    words = [word for word in line.split()[2:] if not word.startswith(("--", "https://"))]
    wrong = [] if words == pins else [f"`{line}` does not ask for {pins}"]
    return wrong + [pin for pin in pins if not _exists(pin, route, system, machine)]


def _exists(pin: str, route: dict[str, Any], system: str, machine: str) -> bool:
    match = _PIN.match(pin)
    if match is None:
        return False
    project, version, local = match.groups()
    line = local or route["variant"]
    if route["index_url"] and local and not route["index_url"].endswith(f"/{local}"):
        return False
    if project == "torch":
        return _torch(version, line, route["python"], system, machine)
    return any(
        row["project"] == project
        and row["version"] == version
        and row["line"] == line
        and (row["system"], row["machine"]) == (system, machine)
        and route["python"] in row["pythons"]
        for row in _rows("companions.json", "companions")
    )


def _torch(version: str, line: str, python: str, system: str, machine: str) -> bool:
    release = next((row for row in _rows("torch_releases.json", "releases") if version in row["patches"]), None)
    if release is None or python not in release[f"pythons_{system}"]:
        return False
    if machine == "x86_64":
        return any(variant["name"] == line for variant in release["variants"])
    platforms = _rows("wheel_platforms.json", "wheels")
    indexed = any(row["minor"] == release["minor"] and row["machine"] == machine and row["cuda"] for row in platforms)
    lines = (TABLES / "aarch64_lines.toml").read_text(encoding="utf-8")
    return indexed or f'minor = "{release["minor"]}"\nvariant = "{line}"' in lines
