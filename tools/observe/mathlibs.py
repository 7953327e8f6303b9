"""Regenerates `cuda/mathlibs.json`: which GPU code NVIDIA's math libraries hold, from the Windows wheels.

    python -m tools.observe mathlibs

The wheels of the rows that the table has are read again by ranges, headers of the code only; it takes a few minutes and
some hundred megabytes each. With `--tape` a run that was broken off goes on where it stopped.
"""

from __future__ import annotations

import sys
from typing import Any

from packaging.utils import parse_wheel_filename

from tools.observe import library_code, table, web


def observe() -> dict[str, list[dict[str, Any]]]:
    current = table.read("mathlibs")["libraries"]
    rows: list[dict[str, Any]] = []
    read = 0
    for package, version in dict.fromkeys((row["package"], row["version"]) for row in current):
        names = {row["library"] for row in current if (row["package"], row["version"]) == (package, version)}
        url = _wheel(package, version)
        if url is None:
            rows += [row for row in current if (row["package"], row["version"]) == (package, version)]
            continue
        print(package, version, file=sys.stderr, flush=True)
        found = library_code.targets(url, lambda path, names=names: _base(path) in names)  # type: ignore[misc]
        for path, targets in sorted(found.items(), key=lambda item: _base(item[0])):
            rows.append(_row(package, version, _base(path), targets))
            read += 1
    table.nothing_read("mathlibs", read)
    return {"libraries": rows}


def _row(package: str, version: str, library: str, targets: list[str]) -> dict[str, Any]:
    source = f"{library} of the win_amd64 wheel"
    about = {"source": source, "observed_at": table.today(), "evidence": "binary"}
    return {"package": package, "version": version, "library": library, "targets": targets, **about}


def _wheel(package: str, version: str) -> str | None:
    for name, url, _ in web.wheels(package):
        parsed = parse_wheel_filename(name)
        if str(parsed[1]) == version and any(tag.platform == "win_amd64" for tag in parsed[3]):
            return url
    return None


def _base(path: str) -> str:
    return path.rpartition("/")[2].lower()
