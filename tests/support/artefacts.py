"""Real artefacts for the tests, fetched once and kept outside the repository.

pip does the fetching, so the mirror, proxy and certificates that are configured for it hold. A download that fails is
tried again; if it still fails the test is reported UNVERIFIED (a skip with that word), never as passed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from filelock import FileLock
from platformdirs import user_cache_dir


def cache() -> Path:
    folder = Path(os.environ.get("REKINDLE_TEST_CACHE") or user_cache_dir("rekindle-tests", appauthor=False))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def wheel(requirement: str, *, platform: str | None = None, python: str = "3.11") -> Path:
    """The wheel of `requirement` (`torch==2.7.1`) for a platform tag (`win_amd64`, `manylinux_2_28_x86_64`)."""
    folder = cache() / "wheels" / f"{requirement.replace('==', '-')}-{platform or 'any'}-{python}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        found = sorted(folder.glob("*.whl"))
        if found:
            return found[0]
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            python,
        ]
        if platform:
            command += ["--platform", platform]
        _download([*command, requirement], folder)
        return sorted(folder.glob("*.whl"))[0]


def _download(command: list[str], folder: Path, tries: int = 3) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        for attempt in range(tries):
            done = subprocess.run(
                [*command, "-d", temporary], capture_output=True, text=True, timeout=1200, check=False
            )
            if done.returncode == 0:
                folder.mkdir(exist_ok=True)
                for file in Path(temporary).iterdir():
                    shutil.move(file, folder / file.name)
                return
            time.sleep(2 * attempt + 1)
    unverified(f"could not be downloaded: {command[-1]}: {done.stderr.strip()[-200:]}")


def needs_environments() -> None:
    """For tests that make a virtual environment: an embedded Python on Windows has neither venv nor pip in it."""
    if any(importlib.util.find_spec(name) is None for name in ("venv", "ensurepip")):
        unverified("this Python cannot make environments: it has no venv (an embedded one)")


def unverified(reason: str) -> None:
    pytest.skip(f"UNVERIFIED: {reason}")
