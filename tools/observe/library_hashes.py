"""Regenerates `cuda/library_hashes.json`: the SHA-256 of every wheel that `repair` may take a library from.

The package index states it beside each file. What `repair` downloads later, from whatever mirror, must be that file.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tools.observe import table, web

_LINK = re.compile(r'href="[^"]*/([^"/#]+\.whl)#sha256=([0-9a-f]{64})"')


def observe() -> dict[str, list[dict[str, Any]]]:
    wanted: dict[str, set[str]] = {}
    for name in ("dlls", "linux_libraries"):
        for row in table.read(name)["wheels"]:
            wanted.setdefault(row["package"], set()).add(row["wheel"])
    with ThreadPoolExecutor(4) as pool:
        stated = dict(pair for pairs in pool.map(_stated, sorted(wanted)) for pair in pairs)
    names = sorted({name for wheels in wanted.values() for name in wheels})
    missing = [name for name in names if name not in stated]
    print(f"{len(names)} wheels, {len(missing)} no longer listed", *missing[:5], file=sys.stderr)
    rows = [
        {
            "wheel": name,
            "sha256": stated[name],
            "source": "the package index's listing",
            "observed_at": table.today(),
            "evidence": "script",
        }
        for name in names
        if name in stated
    ]
    return {"wheels": rows}


def _stated(package: str) -> list[tuple[str, str]]:
    text = web.page(f"{web.index_url()}/{package}/").decode("utf-8")
    return [(name.replace("%2B", "+"), digest) for name, digest in _LINK.findall(text)]


if __name__ == "__main__":
    table.write("library_hashes", observe())
