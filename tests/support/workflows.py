"""Workflow files: the schemas of their formats, and their commands run as a runner would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from support.artefacts import wheel
from support.fleets import ROOT


def schema(name: str) -> dict[str, Any]:
    """The schema of a format, out of the package that collects them."""
    with zipfile.ZipFile(wheel("check-jsonschema==0.39.0")) as archive:
        found: dict[str, Any] = json.loads(archive.read(f"check_jsonschema/builtin_schemas/vendor/{name}.json"))
    return found


def filled(text: str, entry: dict[str, str]) -> str:
    values = {f"matrix.{name}": value for name, value in entry.items()} | {"secrets.REKINDLE_KEY": ""}
    return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: values[found[1]], text)


def run_as_a_runner(steps: list[dict[str, Any]], entry: dict[str, str], folder: Path, temp: Path) -> list[str]:
    """The steps that are commands, in order, with the expressions of the matrix put in, without GitHub's actions."""
    ran = []
    for step in steps:
        when = step.get("if", "")
        if "run" not in step or ("matrix.toolchain" in when and not entry["toolchain"]):
            continue
        if "matrix.room" in when and entry["room"] != "yes":
            continue
        environ = {name: filled(value, entry) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", filled(step["run"], entry)],
            cwd=folder,
            env={**os.environ, **environ, "RUNNER_TEMP": str(temp),
                 "GITHUB_OUTPUT": str(temp / "output"), "REKINDLE_REQUIREMENT": str(ROOT),
                 "REKINDLE_KEY": str(temp / "own-key.pem"), "PATH": f"{temp / 'bin'}:{os.environ['PATH']}"},
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, (step["name"], done.stderr[-2000:])
        ran.append(step["name"])
    return ran
