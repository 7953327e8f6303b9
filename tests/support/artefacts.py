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
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from platformdirs import user_cache_dir

from rekindle.core.paths import venv_python


def cache() -> Path:
    folder = Path(os.environ.get("REKINDLE_TEST_CACHE") or user_cache_dir("rekindle-tests", appauthor=False))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """A folder of the cache that tests share: one of them makes it while the others wait.

    `make` begins anew, or goes on, where an earlier one was broken off.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "complete").exists():
            make(folder)
            (folder / "complete").touch()
    return folder


def wheel(requirement: str, *, platform: str | None = None, python: str = "3.11") -> Path:
    """The wheel of `requirement` (`torch==2.7.1`) for a platform tag (`win_amd64`, `manylinux_2_28_x86_64`)."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, *(["--platform", platform] if platform else []), requirement]

    def fetch(folder: Path) -> None:
        if not any(folder.glob("*.whl")):
            _download(command, folder)

    name = f"{requirement.replace('==', '-')}-{platform or 'any'}-{python}"
    return sorted(made_once(cache() / "wheels" / name, fetch).glob("*.whl"))[0]


def environment(name: str, *requirements: str) -> Path:
    """A virtual environment with packages of the index."""

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=300)
        pip = [str(venv_python(folder)), "-m", "pip", "install", "-q", *requirements]
        done = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=3000)
        if done.returncode:
            unverified(f"{requirements[0]} could not be installed: {done.stderr.strip()[-200:]}")

    return made_once(cache() / "environments" / f"{name}-{sys.version_info[0]}.{sys.version_info[1]}", make)


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
