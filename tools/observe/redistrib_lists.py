"""Regenerates `cuda/redistrib_lists.json`: NVIDIA's lists of redistributable archives, each with a digest.

    python -m tools.observe redistrib_lists FOLDER

FOLDER holds `cuda/redistrib_11.8.0.json` and the like, as NVIDIA publishes them; nixpkgs keeps copies of many.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rekindle.core.version import Version
from rekindle.toolchain.providers import redistrib
from tools.observe import table


def observe(folder: str) -> dict[str, list[dict[str, Any]]]:
    rows = [_row(path) for product in ("cuda", "cudnn") for path in (Path(folder) / product).glob("redistrib_*.json")]
    return {"lists": sorted(rows, key=lambda row: (row["product"], Version(row["release"])))}


def _row(path: Path) -> dict[str, Any]:
    listed = redistrib.read(path.read_bytes(), path.name)
    return {
        "product": path.parent.name,
        "release": listed.label,
        "released": listed.date,
        "archives": len(listed.archives),
        "digest": listed.digest,
        "source": f"a copy of {path.name} in nixpkgs or its archive of old CUDAs",
        "observed_at": table.today(),
        "evidence": "binary",
    }
