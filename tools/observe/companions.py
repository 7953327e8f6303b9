"""Regenerates `observed/companions.json`: which torchvision and torchaudio were built for which torch.

Read from the requirement `torch==X` in the metadata of every torchvision and torchaudio wheel of the index.
"""

from __future__ import annotations

import re

from tools.observe import index, table

PYTHONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]


def observe() -> dict[str, list[dict[str, object]]]:
    found: dict[str, dict[str, str]] = {}
    for package in ("torchvision", "torchaudio"):
        for version in index.versions(package, PYTHONS):
            torch = _torch_of(package, version)
            if torch:
                found.setdefault(torch, {}).setdefault(package, version)
    rows: list[dict[str, object]] = [
        {
            "torch": torch,
            "torchvision": found[torch].get("torchvision"),
            "torchaudio": found[torch].get("torchaudio"),
            "source": "requirement torch==… in the metadata of the torchvision and torchaudio wheels of the index",
            "observed_at": table.today(),
            "evidence": "binary",
        }
        for torch in sorted(found, key=lambda text: [int(part) for part in text.split(".")])
    ]
    return {"companions": rows}


def _torch_of(package: str, version: str) -> str | None:
    for python in ("3.11", "3.9", "3.12", "3.13", "3.8"):
        data = index.metadata(f"{package}=={version}", "linux", python)
        for requirement in (data or {}).get("requires_dist", []):
            match = re.match(r"torch\s*\(?==\s*([\d.]+)", requirement)
            if match:
                return match[1]
        if data is not None:
            return None
    return None


if __name__ == "__main__":
    table.write("companions", observe())
