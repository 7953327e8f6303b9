"""Regenerates `torch/companions.json`: which torchvision and torchaudio belong to which torch.

Read from the requirement on torch in the metadata of every torchvision and torchaudio wheel of the index: `torch==X`
names one release, `torch>=X` (torchvision from 0.29.1 on) any later one that has no wheel of its own.
"""

from __future__ import annotations

import re
from typing import Any

from tools.observe import index, table

PYTHONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
SOURCE = "requirement on torch in the metadata of the torchvision and torchaudio wheels of the index"


def observe() -> dict[str, list[dict[str, Any]]]:
    exact: dict[str, dict[str, str]] = {}
    from_on: dict[str, list[tuple[str, str]]] = {"torchvision": [], "torchaudio": []}
    torches = {torch for row in table.read("torch_releases")["releases"] for torch in row["patches"]}
    for package in from_on:
        for version in index.versions(package, PYTHONS):
            match = _requirement(package, version)
            if match is None and version in torches:
                # torchaudio from 2.11 on names no torch; it is released under torch's own number.
                exact.setdefault(version, {}).setdefault(package, version)
            elif match and match[1] == "==":
                exact.setdefault(match[2], {}).setdefault(package, version)
            elif match:
                from_on[package].append((match[2], version))
    for row in table.read("torch_releases")["releases"]:
        for torch in row["patches"]:
            for package, floors in from_on.items():
                fitting = [version for floor, version in floors if _number(floor) <= _number(torch)]
                if fitting and package not in exact.get(torch, {}):
                    exact.setdefault(torch, {})[package] = max(fitting, key=_number)
    return {"companions": [_row(torch, exact[torch]) for torch in sorted(exact, key=_number)]}


def _row(torch: str, found: dict[str, str]) -> dict[str, Any]:
    return {
        "torch": torch,
        "torchvision": found.get("torchvision"),
        "torchaudio": found.get("torchaudio"),
        "source": SOURCE,
        "observed_at": table.today(),
        "evidence": "binary",
    }


def _requirement(package: str, version: str) -> re.Match[str] | None:
    for python in ("3.11", "3.9", "3.12", "3.13", "3.8"):
        data = index.metadata(f"{package}=={version}", "linux", python)
        if data is not None:
            found = [re.match(r"torch\s*\(?(==|>=)\s*([\d.]+)", text) for text in data.get("requires_dist", [])]
            return next((match for match in found if match), None)
    return None


def _number(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


if __name__ == "__main__":
    table.write("companions", observe())
