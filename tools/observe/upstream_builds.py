"""Regenerates `torch/upstream_builds.json`: the CUDA toolkits that PyTorch's own machines compile each release with.

    python -m tools.observe upstream_builds CLONE

CLONE is a clone of pytorch/pytorch with its tags. Wheels: `CUDA_ARCHES` in `generate_binary_build_matrix.py`; tests:
the CUDA named by the jobs of the workflows. Releases whose tag the clone lacks are in `stated/upstream_builds.toml`, as
a person read them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from tools.observe import table
from tools.observe.pytorch_tree import git

STATED = Path(__file__).parent / "stated" / "upstream_builds.toml"
MATRIX = ".github/scripts/generate_binary_build_matrix.py"
WORKFLOWS = [f".github/workflows/{name}.yml" for name in ("pull", "trunk", "periodic", "inductor", "slow", "nightly")]


def observe(clone: str) -> dict[str, list[dict[str, Any]]]:
    stated = msgspec.toml.decode(STATED.read_bytes())["build"]
    rows: list[dict[str, Any]] = []
    for release in table.read("torch_releases")["releases"]:
        minor = release["minor"]
        tag = f"v{max(release['patches'], key=lambda text: [int(part) for part in text.split('.')])}"
        matrix = git(clone, "show", f"{tag}:{MATRIX}")
        if not matrix:
            rows += [row for row in stated if row["minor"] == minor]
            print(f"UNVERIFIED: the clone has no {tag}; {minor} is read from {STATED.name}", file=sys.stderr)
            continue
        wheels = _wheels(matrix)
        rows += [_row(minor, cuda, "wheel", f"{MATRIX} at {tag}") for cuda in wheels]
        tests = sorted(_tests(clone, tag) - set(wheels), key=_number)
        rows += [_row(minor, cuda, "test", f".github/workflows at {tag}") for cuda in tests]
        print(minor, "wheels", *wheels, "tests", *tests, file=sys.stderr)
    return {"builds": rows}


def _wheels(matrix: str) -> list[str]:
    match = re.search(r"^CUDA_ARCHES = \[([^\]]*)\]", matrix, re.MULTILINE)
    return re.findall(r"\d+\.\d+", match[1]) if match else []


def _tests(clone: str, tag: str) -> set[str]:
    """The toolkits of the jobs that compile: `build-environment: linux-jammy-cuda12.6-py3.10-gcc11`."""
    found: set[str] = set()
    for path in WORKFLOWS:
        for line in git(clone, "show", f"{tag}:{path}").splitlines():
            if "build-environment:" in line and "libtorch" not in line:
                found |= set(re.findall(r"cuda(\d+\.\d+)", line))
    return found


def _row(minor: str, cuda: str, purpose: str, source: str) -> dict[str, Any]:
    sourced = {"source": f"pytorch/pytorch: {source}", "observed_at": table.today(), "evidence": "script"}
    return {"minor": minor, "cuda": cuda, "purpose": purpose, **sourced}


def _number(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


if __name__ == "__main__":
    table.write("upstream_builds", observe(sys.argv[1]))
