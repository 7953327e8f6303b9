"""A Python environment of the build's own, with what this release needs to build, in the versions that work for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rekindle.build.configure.backends import Command
from rekindle.core.paths import venv_python


def commands(base: str, folder: Path, requirements: Sequence[str]) -> list[Command]:
    """Make the environment with the plan's Python; pip's own settings (index, proxy, certificates) hold."""
    inside = str(venv_python(folder))
    first = (base, "-m", "venv", "--clear", str(folder))
    second = (inside, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *requirements)
    return [Command(args=first, cwd=str(folder.parent)), Command(args=second, cwd=str(folder.parent))]
