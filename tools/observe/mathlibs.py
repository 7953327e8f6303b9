"""Regenerates `cuda/mathlibs.json`: which GPU code NVIDIA's math libraries hold, from the Windows wheels.

    python -m tools.observe mathlibs

The index lists them; of each package the first and the last version are opened, since the code of a major only loses
old targets and gains new ones between the two. A wheel is read by ranges, headers of the code only; it takes a few
minutes and some hundred megabytes each. With `--tape` a run that was broken off goes on where it stopped. A file on the
index never changes, so a wheel that the table has rows of is not opened again; delete the table to open them all.
"""

from __future__ import annotations

import sys
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tools.observe import library_code, table, web

LIBRARIES = ("cublas", "cufft", "curand", "cusolver", "cusparse")
LINES = ("-cu11", "-cu12", "")
"""The packages of CUDA 13 have no suffix."""


def observe() -> dict[str, list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    current = table.read("mathlibs")["libraries"] if table.place("mathlibs").exists() else []
    for package in [f"nvidia-{library}{line}" for library in LIBRARIES for line in LINES]:
        for version, url in _ends(package):
            if known := [row for row in current if (row["package"], row["version"]) == (package, version)]:
                rows += known
                continue
            print(package, version, file=sys.stderr, flush=True)
            with web.opened(url) as wheel:
                found = library_code.targets(wheel, _is_library)
            rows += [_row(package, version, _base(path), found[path]) for path in sorted(found, key=_base)]
    table.nothing_read("mathlibs", len(rows))
    return {"libraries": rows}


def replaced(row: dict[str, Any], new: list[dict[str, Any]]) -> bool:
    """The row of a version that was the last one until a later one came: no loss that a person must look at."""
    return any(
        other["package"] == row["package"] and Version(other["version"]) > Version(row["version"]) for other in new
    )


def _ends(package: str) -> list[tuple[str, str]]:
    """The first and the last version of a package that has a wheel for Windows, and the wheels' addresses."""
    found: dict[Version, str] = {}
    for name, url, withdrawn in web.wheels(package):
        _, version, _, tags = parse_wheel_filename(name)
        if any(tag.platform == "win_amd64" for tag in tags) and not (withdrawn or version.is_prerelease):
            found[version] = url
    return [(str(version), found[version]) for version in sorted({min(found), max(found)})] if found else []


def _row(package: str, version: str, library: str, targets: list[str]) -> dict[str, Any]:
    source = f"{library} of the win_amd64 wheel"
    about = {"source": source, "observed_at": table.today(), "evidence": "binary"}
    return {"package": package, "version": version, "library": library, "targets": targets, **about}


def _is_library(path: str) -> bool:
    """All but cuFFT's face for programs written for FFTW: torch does not load it, and it holds one stray target."""
    return path.lower().endswith(".dll") and not _base(path).startswith("cufftw")


def _base(path: str) -> str:
    return path.rpartition("/")[2].lower()
