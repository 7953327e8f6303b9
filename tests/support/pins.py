"""Is every pin of a printed command known to exist? Asked of the tables' rows, by none of the code that made it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import rekindle
from rekindle.core import codec

TABLES = Path(rekindle.__file__).parent / "knowledge" / "torch"
_PIN = re.compile(r"(torch|torchvision|torchaudio)==([0-9.]+)(?:\+(\w+))?\Z")


@cache
def _rows(name: str, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((TABLES / name).read_text(encoding="utf-8"))[key]
    return found


def unknown(route: dict[str, Any], system: str, machine: str) -> list[str]:
    """What stands in the command and in no row; and a command that is not made of its pins."""
    pins = route["requirements"]
    line = next(command for command in route["commands"] if "pip install torch" in command)
    words = [word for word in line.partition("pip install ")[2].split() if not word.startswith(("--", "https://"))]
    wrong = [] if words == pins else [f"`{line}` does not ask for {pins}"]
    return wrong + [pin for pin in pins if not _exists(pin, route, system, machine)]


def _exists(pin: str, route: dict[str, Any], system: str, machine: str) -> bool:
    match = _PIN.match(pin)
    if match is None:
        return False
    project, version, local = match.groups()
    line = _line(project, version, local, route)
    if route["index_url"] and local and not route["index_url"].endswith(f"/{local}"):
        return False
    if _early(project, version, line, system):
        return machine == "x86_64"
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


def _line(project: str, version: str, local: str | None, route: dict[str, Any]) -> str:
    """torchaudio had no GPU code before 0.10, and one wheel for all lines."""
    plain = project == "torchaudio" and version.startswith("0.") and int(version.split(".")[1]) < 10
    return local or ("cpu" if plain else str(route["variant"]))


def _early(project: str, version: str, line: str, system: str) -> bool:
    """A wheel of a release before those of the tables."""
    rows = codec.from_toml((TABLES / "old_lines.toml").read_bytes(), dict[str, Any])["line"]
    return any((row.get(project), row["variant"], row["system"]) == (version, line, system) for row in rows)


def _torch(version: str, line: str, python: str, system: str, machine: str) -> bool:
    for row in _rows("old_wheels.json", "wheels"):
        if (row["version"], row["system"], row["machine"]) == (version, system, machine):
            return python in row["pythons"] and line == f"cu{row['cuda'].replace('.', '')}"
    release = next((row for row in _rows("torch_releases.json", "releases") if version in row["patches"]), None)
    free = release["free_threaded"].get(version, []) if release else []
    if release is None or python not in [*release[f"pythons_{system}"], *free]:
        return False
    if machine == "x86_64":
        return any(variant["name"] == line for variant in release["variants"])
    platforms = _rows("wheel_platforms.json", "wheels")
    indexed = any(row["minor"] == release["minor"] and row["machine"] == machine and row["cuda"] for row in platforms)
    lines = (TABLES / "aarch64_lines.toml").read_text(encoding="utf-8")
    return indexed or f'minor = "{release["minor"]}"\nvariant = "{line}"' in lines


def states(route: dict[str, Any], system: str, machine: str) -> list[tuple[str, str]]:
    """Every pin of every printed command, and how it is known: an evidence, or `UNVERIFIED`."""
    found: list[tuple[str, str]] = []
    for line in route["commands"]:
        if re.match(r"(?:\S+ -m |conda run .* -m )?pip install", line):
            found += [(word, _how(word, route, system, machine)) for word in _words(line) if "==" in word]
            found += [(word, "UNVERIFIED") for word in _words(line) if word.startswith("https://") and ".whl" in word]
        elif line.startswith("conda install"):
            found += [
                (word, _conda(word, route, system, machine))
                for word in _words(line)
                if word[0].isalpha() and "=" in word
            ]
        elif line.startswith("rekindle plan"):
            found += [
                (f"{name} {value}", _named(name, value)) for name, value in re.findall(r"--(torch|cuda) (\S+)", line)
            ]
        elif line.startswith("rekindle extension build"):
            found.append((line.split()[3], _companion(line.split()[3])))
    return found


def _words(line: str) -> list[str]:
    return [word.strip('"') for word in line.split()[2:]]


def _how(pin: str, route: dict[str, Any], system: str, machine: str) -> str:
    match = _PIN.match(pin)
    if match is None:
        # mkl and intel-openmp of somebody's wheel: named in its row.
        return "notes" if pin in (TABLES / "community_wheels.toml").read_text(encoding="utf-8") else "UNVERIFIED"
    if not _exists(pin, route, system, machine):
        return "UNVERIFIED"
    project, version, local = match.groups()
    line = _line(project, version, local, route)
    if _early(project, version, line, system):
        return "script"
    if project != "torch":
        rows = _rows("companions.json", "companions")
        wanted = (project, version, line, system, machine)
        same = [
            row
            for row in rows
            if (row["project"], row["version"], row["line"], row["system"], row["machine"]) == wanted
        ]
        return str(same[0]["evidence"])
    names = ("torch_wheels.json", "torch_wheels_aarch64.json", "old_wheels.json")
    opened = [row for name in names for row in _rows(name, "wheels")]
    if any(
        f"torch-{version}" in row["wheel"] and (row["system"], row["machine"]) == (system, machine) for row in opened
    ):
        return "binary"
    release = next(row for row in _rows("torch_releases.json", "releases") if version in row["patches"])
    variant = next((row for row in release["variants"] if row["name"] == line), None)
    return str(variant["evidence"] if variant else "notes")


def _conda(pin: str, route: dict[str, Any], system: str, machine: str) -> str:
    rows = _rows("conda_forge.json", "builds")
    name, _, version = pin.partition("=")
    wanted = (route["torch"], system, machine)
    same = [row for row in rows if (row["torch"], row["system"], row["machine"]) == wanted]
    held = {
        "python": any(version in row["pythons"] for row in same),
        "pytorch": bool(same),
        "cuda-version": any(row["cuda"] == version for row in same),
    }
    if name.startswith(("libcudnn", "cudnn")):
        # An upper end, which any release below it meets.
        return "notes"
    return str(same[0]["evidence"]) if held.get(name) else "UNVERIFIED"


def _named(name: str, value: str) -> str:
    if name == "torch":
        release = next((row for row in _rows("torch_releases.json", "releases") if value in row["patches"]), None)
        return str(release["evidence"]) if release else "UNVERIFIED"
    toolkits = json.loads((TABLES.parent / "cuda" / "toolkits.json").read_text(encoding="utf-8"))["toolkits"]
    row = next((row for row in toolkits if row["version"] == value), None)
    return str(row["evidence"]) if row else "UNVERIFIED"


def _companion(pin: str) -> str:
    project, version = pin.split("==")
    rows = [
        row for row in _rows("companions.json", "companions") if (row["project"], row["version"]) == (project, version)
    ]
    return str(rows[0]["evidence"]) if rows else "UNVERIFIED"
