"""A minimal Debian 12 with python3 in a folder of its own, made once by debootstrap."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.artefacts import cache, made_once, unverified
from support.wine import CannotSetUp, debian_mirror


def minimal_debian() -> Path:
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("debootstrap"):
        unverified("a minimal Debian needs Linux, root and debootstrap")
    return made_once(cache() / "bookworm-python", _bootstrap)


def _bootstrap(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    try:
        mirror = debian_mirror()
    except CannotSetUp as error:
        unverified(str(error))
    command = ["debootstrap", "--variant=minbase", "--include=python3", "bookworm", str(root), mirror]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        unverified(f"debootstrap: {done.stdout.strip()[-200:]}")
