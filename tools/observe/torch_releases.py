"""Brings `torch/torch_releases.json` up to date with the releases of torch on the package index.

    python -m tools.observe torch_releases

Read from the index: which patch releases there are, for which Pythons, and in the Linux wheel METADATA (cuDNN, Python)
and `version.py` (CUDA, commit). Of a new minor release, what only the source tree tells (compilers, CMake, the other
CUDA lines and their architectures) is taken over from the release before it and named in `uncertain`: read it in the
tree, correct the row, and take the words out of `uncertain`.
"""

from __future__ import annotations

import copy
import re
import sys
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tools.observe import table, web

FIRST = Version("1.10")
UNREAD = "taken over from {before}, not yet read in the tree: compilers, CMake, other CUDA lines, architectures"


def observe() -> dict[str, list[dict[str, Any]]]:
    rows = copy.deepcopy(table.read("torch_releases")["releases"])
    known = {row["minor"]: row for row in rows}
    for version, wheels in sorted(_versions().items()):
        minor = f"{version.major}.{version.minor}"
        if minor not in known:
            rows.append(_new(minor, rows[-1]))
            known[minor] = rows[-1]
        row = known[minor]
        if str(version) not in row["patches"] or len(row["patches"]) == 1:
            _take(row, version, wheels)
    return {"releases": sorted(rows, key=lambda row: Version(row["minor"]))}


def _versions() -> dict[Version, list[tuple[str, str]]]:
    found: dict[Version, list[tuple[str, str]]] = {}
    for name, url, yanked in web.wheels("torch"):
        version = parse_wheel_filename(name)[1]
        if not yanked and version >= FIRST and not version.is_prerelease:
            found.setdefault(version, []).append((name, url))
    return found


def _new(minor: str, before: dict[str, Any]) -> dict[str, Any]:
    row = copy.deepcopy(before)
    words = UNREAD.format(before=before["minor"])
    row |= {"minor": minor, "patches": {}, "uncertain": [words], "warning": None, "git_version": None}
    row |= {"source": f"wheel of the package index; {words}", "observed_at": table.today(), "evidence": "notes"}
    for name in ("numpy2_linux_from", "numpy2_windows_from"):
        row[name] = f"{minor}.0" if row[name] else None
    for variant in row["variants"]:
        variant |= {"index_default_linux": False, "source": words, "observed_at": table.today(), "evidence": "notes"}
    return row


def _take(row: dict[str, Any], version: Version, wheels: list[tuple[str, str]]) -> None:
    """The newest patch release decides what holds for the minor."""
    row["patches"].setdefault(str(version), table.today())
    if version != max(Version(text) for text in row["patches"]):
        return
    row["pythons_linux"] = _pythons(wheels, r"linux.*x86_64$")
    row["pythons_windows"] = _pythons(wheels, r"win_amd64$")
    linux = [url for name, url in wheels if re.search(r"linux[^/]*x86_64\.whl$", name)]
    if not linux:
        return
    archive = web.archive(linux[-1])
    texts = {name: archive.read(name).decode("utf-8") for name in archive.members if _wanted(name)}
    metadata = next(text for name, text in texts.items() if name.endswith("METADATA"))
    about = texts.get("torch/version.py", "")
    said = re.search(r"^Requires-Python: (\S+)", metadata, re.MULTILINE)
    row["requires_python"] = said[1] if said else row["requires_python"]
    commit = re.search(r"git_version = '(\w+)'", about)
    row["git_version"] = commit[1] if commit else row["git_version"]
    _default(row, about, metadata)
    print("torch", version, file=sys.stderr, flush=True)


def _default(row: dict[str, Any], about: str, metadata: str) -> None:
    """The CUDA line of the wheel on the index, and its cuDNN."""
    cuda = re.search(r"^cuda(?:: [^=]+)? = '(\d+\.\d+)'", about, re.MULTILINE)
    cudnn = re.search(r"nvidia-cudnn-cu\d+ ?\(?==([\d.]+)", metadata)
    if cuda is None:
        return
    name = f"cu{cuda[1].replace('.', '')}"
    own = next((variant for variant in row["variants"] if variant["name"] == name), None)
    if own is None:
        own = copy.deepcopy(row["variants"][-1]) | {"name": name, "cuda": cuda[1], "experimental": False}
        row["variants"].append(own)
    for variant in row["variants"]:
        variant["index_default_linux"] = variant is own
    if cudnn:
        own["cudnn"] = cudnn[1]


def _pythons(wheels: list[tuple[str, str]], platform: str) -> list[str]:
    tags = {
        tag.interpreter
        for name, _ in wheels
        for tag in parse_wheel_filename(name)[3]
        if re.search(platform, tag.platform)
    }
    minors = sorted(int(match[1]) for tag in tags if (match := re.fullmatch(r"cp3(\d+)", tag)))
    return [f"3.{minor}" for minor in minors]


def _wanted(name: str) -> bool:
    return name == "torch/version.py" or bool(re.fullmatch(r"torch-[^/]+\.dist-info/METADATA", name))
