"""Regenerates `cuda/toolkit_packages.json`: which packages of the index make up each CUDA toolkit.

    python -m tools.observe toolkit_packages

Read from METADATA of every version of the package `cuda-toolkit`: each extra is a component, and names its packages.
"""

from __future__ import annotations

import re
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tools.observe import table, web

_REQUIRES = re.compile(r"^Requires-Dist: (?P<pin>[^;\s]+);.*\bextra == '(?P<extra>[\w-]+)'\s*$", re.MULTILINE)


def observe() -> dict[str, list[dict[str, Any]]]:
    found = {parse_wheel_filename(name)[1]: url for name, url, yanked in web.wheels("cuda-toolkit") if not yanked}
    return {"toolkits": [_row(version, found[version]) for version in sorted(found)]}


def _row(version: Version, url: str) -> dict[str, Any]:
    archive = web.archive(url)
    metadata = archive.read(next(name for name in archive.members if name.endswith(".dist-info/METADATA")))
    components: dict[str, list[str]] = {}
    for match in _REQUIRES.finditer(metadata.decode("utf-8")):
        if match["extra"] != "all":
            components.setdefault(match["extra"], []).append(match["pin"])
    return {
        "version": str(version),
        "components": {name: components[name] for name in sorted(components)},
        "source": "METADATA of the cuda-toolkit package",
        "observed_at": table.today(),
        "evidence": "binary",
    }
