"""Asks the package index through pip, so that the configured mirror, proxy and certificates hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
_MANYLINUX = ("manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_27", "manylinux_2_28")
PLATFORMS = {"linux": [f"{tag}_x86_64" for tag in _MANYLINUX], "windows": ["win_amd64"]}


def reach(what: str) -> None:
    """What pip reads is on no tape: offline, nothing of it can be had."""
    if os.environ.get("REKINDLE_OBSERVE_OFFLINE"):
        raise SystemExit(f"{what} is asked of the package index through pip (--offline)")


def versions(package: str, pythons: list[str]) -> list[str]:
    """Every version of a package that has a wheel for one of these Pythons."""
    reach(package)
    found: dict[str, None] = {}
    for python in pythons:
        command = [*PIP, "index", "versions", package, "--python-version", python, "--only-binary=:all:"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        match = re.search(r"Available versions: (.*)", done.stdout)
        found |= dict.fromkeys(match[1].split(", ") if match else [])
    return list(found)


def metadata(requirement: str, system: str, python: str) -> dict[str, Any] | None:
    """The metadata of a wheel, read without downloading the wheel where the index offers that. None: there is none."""
    reach(requirement)
    with tempfile.TemporaryDirectory() as folder:
        command = [*PIP, "install", "-q", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"]
        command += ["--target", folder, "--only-binary=:all:", "--python-version", python, *_platforms(system)]
        done = subprocess.run([*command, requirement], capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        return None
    found: dict[str, Any] = json.loads(done.stdout)["install"][0]["metadata"]
    return found


def download(requirement: str, system: str, python: str, folder: Path) -> Path | None:
    reach(requirement)
    command = [*PIP, "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", python]
    command += ["-d", str(folder), *_platforms(system)]
    done = subprocess.run([*command, requirement], capture_output=True, text=True, timeout=1800, check=False)
    return max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime) if done.returncode == 0 else None


def _platforms(system: str) -> list[str]:
    return [word for platform in PLATFORMS[system] for word in ("--platform", platform)]
