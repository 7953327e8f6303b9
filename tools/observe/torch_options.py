"""Brings `torch/torch_options.json` up to date with the build options of PyTorch's tree at each release.

    python -m tools.observe torch_options CLONE

CLONE is a clone of pytorch/pytorch with its tags. An option is what `option(NAME "..." DEFAULT)` or
`cmake_dependent_option` in CMakeLists.txt and cmake/ declares. The ranges of options are read anew for every tag that
the clone has; a range that reached a release without a tag keeps its end. Environment variables, which setup.py reads
in many ways, stay as they are.
"""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from typing import Any

from packaging.version import Version

from tools.observe import table

_OPTION = re.compile(r"^\s*(?:cmake_dependent_)?option\(\s*(\w+)\s*\n?\s*\"[^\"]*\"\s*(ON|OFF|\$\{\w+\})?", re.M | re.I)

# CMake's own FindCUDA and protobuf's options, which come along and are not PyTorch's.
_FOREIGN = re.compile(r"Modules_CUDA_fix|ProtoBuf")


def observe(clone: str) -> dict[str, list[dict[str, Any]]]:
    current = copy.deepcopy(table.read("torch_options")["options"])
    releases = [row["minor"] for row in table.read("torch_releases")["releases"]]
    seen = {minor: found for minor in releases if (found := options_at(clone, tag_of(minor)))}
    print("tags read:", *seen, file=sys.stderr)
    names = {row["name"]: row for row in current}
    for name in sorted({name for found in seen.values() for name in found} - set(names)):
        row = {"name": name, "kind": "option", "becomes": None, "ranges": _ranges(name, seen)}
        source = "pytorch/pytorch: CMakeLists.txt and cmake/ of each release"
        current.append(row | {"source": source, "observed_at": table.today(), "evidence": "script"})
    return {"options": sorted(current, key=lambda row: str(row["name"]))}


def options_at(clone: str, tag: str) -> dict[str, str | None]:
    """The options that the tree declares, with their defaults."""
    listed = git(clone, "ls-tree", "-r", "--name-only", tag, "CMakeLists.txt", "cmake").split()
    found: dict[str, str | None] = {}
    for path in listed:
        if path.endswith((".txt", ".cmake")) and not _FOREIGN.search(path):
            for name, default in _OPTION.findall(git(clone, "show", f"{tag}:{path}")):
                found.setdefault(name, default if default in ("ON", "OFF") else None)
    return found


def _ranges(name: str, seen: dict[str, dict[str, str | None]]) -> list[dict[str, Any]]:
    with_it = [minor for minor in sorted(seen, key=Version) if name in seen[minor]]
    default = seen[with_it[-1]][name]
    return [{"first": with_it[0], "last": with_it[-1]} | ({"default": default} if default else {})]


def tag_of(minor: str) -> str:
    row = next(row for row in table.read("torch_releases")["releases"] if row["minor"] == minor)
    return f"v{max(row['patches'], key=Version)}"


def git(clone: str, *words: str) -> str:
    done = subprocess.run(["git", "-C", clone, *words], capture_output=True, text=True, check=False, errors="replace")
    return done.stdout if done.returncode == 0 else ""
