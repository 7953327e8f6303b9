"""Brings `cuda/cudnn.json` up to date with the cuDNN packages of the index.

    python -m tools.observe cudnn

Listed is every version with its packages, systems and withdrawals. The GPU code of a version that the table lacks is
read off its Linux wheel by ranges, and that of a version which an official wheel of torch brings. Others that were
never opened keep what was concluded from their neighbours; a deleted table opens them all (some hundred megabytes
each). The families before the index stand in `stated/cudnn.toml`, as a person read them.
"""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tools.observe import library_code, table, web

STATED = Path(__file__).parent / "stated" / "cudnn.toml"
FAMILY = ("first", "last", "cuda", "min_capability", "min_capability_cuda10", "source", "observed_at", "evidence")
PACKAGES = ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


def observe() -> dict[str, list[dict[str, Any]]]:
    current = copy.deepcopy(table.read("cudnn")["releases"]) if table.place("cudnn").exists() else []
    known = {row["version"]: row for row in current}
    families = msgspec.toml.decode(STATED.read_bytes())["families"]
    print(f"UNVERIFIED: {len(families)} families of cuDNN are read from {STATED.name}", file=sys.stderr)
    listed, brought = _listed(), _brought()
    for version in sorted(listed, key=Version):
        packages, yanked, wheel = listed[version]
        row = known.get(version)
        if row is None or (row["targets"] is None and version in brought):
            row = _scanned(version, packages, wheel)
        row |= {"packages": packages, "yanked": yanked, "cuda_majors": sorted({int(p[-2:]) for p in packages})}
        known[version] = row
    return {
        "releases": sorted(known.values(), key=lambda row: Version(row["version"])),
        "families": [{name: family.get(name) for name in FAMILY} for family in families],
    }


def _brought() -> set[str]:
    """The versions inside the official wheels of torch."""
    rows = table.read("torch_releases")["releases"]
    return {variant["cudnn"] for row in rows for variant in row["variants"] if variant["cudnn"]}


def _listed() -> dict[str, tuple[dict[str, list[str]], list[str], str]]:
    """By version: the systems of each package, the packages that were withdrawn, and a wheel to open."""
    found: dict[str, tuple[dict[str, list[str]], list[str], str]] = {}
    for package in PACKAGES:
        for name, url, withdrawn in web.wheels(package):
            _, version, _, tags = parse_wheel_filename(name)
            system = _system([tag.platform for tag in tags])
            if system is None or version.is_prerelease:
                continue
            packages, yanked, _ = found.setdefault(str(version), ({}, [], url))
            packages[package] = sorted({*packages.get(package, []), system})
            if withdrawn:
                yanked.append(f"{package} {'linux_x86_64' if system == 'linux' else 'win_amd64'}")
            if system == "linux":
                found[str(version)] = (packages, yanked, url)
    return found


def _system(platforms: list[str]) -> str | None:
    if any(re.search(r"linux.*x86_64$", platform) for platform in platforms):
        return "linux"
    return "windows" if "win_amd64" in platforms else None


def _scanned(version: str, packages: dict[str, list[str]], wheel: str) -> dict[str, Any]:
    print(f"reading cuDNN {version}", file=sys.stderr, flush=True)
    with web.opened(wheel) as package:
        codes = library_code.codes(package, lambda path: "cudnn" in path)
    targets, stray = library_code.in_every(codes)
    if stray:
        print(f"cuDNN {version}: not in every library, left out: {', '.join(stray)}", file=sys.stderr)
    numbers = [target.removeprefix("sm_").rstrip("af") for target in targets if target.startswith("sm_")]
    lowest = min(numbers, key=int)
    return {
        "version": version,
        "cuda_majors": sorted({int(package[-2:]) for package in packages}),
        "min_capability": f"{lowest[:-1]}.{lowest[-1]}",
        "targets": targets,
        "packages": packages,
        "yanked": [],
        "source": "SASS scan of this exact wheel",
        "observed_at": table.today(),
        "evidence": "binary",
    }
