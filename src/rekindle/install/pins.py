"""Constraints that keep later pip runs from replacing what was installed.

The file alone helps only who passes it along, so the environment's own pip configuration is made to name it. What was
in that configuration before stays, and comes back byte for byte on undo.
"""

from __future__ import annotations

import configparser
import io
import os
from pathlib import Path

from rekindle.core import files
from rekindle.model.environment import Environment

CONSTRAINTS = "rekindle-constraints.txt"


def constraints_file(environment: Environment) -> Path:
    return Path(environment.root) / CONSTRAINTS


def pip_configuration(environment: Environment) -> Path:
    """The configuration that pip reads for this environment only."""
    return Path(environment.root) / ("pip.ini" if os.name == "nt" else "pip.conf")


def write_constraints(environment: Environment, pins: dict[str, str], extra: tuple[str, ...] = ()) -> Path:
    path = constraints_file(environment)
    head = "# Keeps the PyTorch that runs on this card. Written by `rekindle install`, taken back by its `--undo`.\n"
    lines = [f"{name}=={version}" for name, version in sorted(pins.items())]
    files.write_text(path, head + "\n".join([*lines, *extra]) + "\n")
    return path


def name_in_pip(environment: Environment, constraints: Path) -> Path:
    """Make the environment's pip read the constraints by itself."""
    path = pip_configuration(environment)
    settings = configparser.RawConfigParser()
    if path.is_file():
        settings.read_string(files.plain_text(path))
    if not settings.has_section("install"):
        settings.add_section("install")
    # pip splits the value at spaces, so a path that may have some is named as an address.
    address = constraints.absolute().as_uri()
    known = [word for word in settings.get("install", "constraint", fallback="").split() if word != address]
    settings.set("install", "constraint", " ".join([*known, address]))
    text = io.StringIO()
    settings.write(text)
    files.write_text(path, text.getvalue())
    return path
