"""The composite action: its steps, executed as a runner would, on a wheel that lost an architecture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import torch_like

PROJECT = Path(__file__).parents[2]
ACTION = yaml.safe_load((PROJECT / "action.yml").read_text(encoding="utf-8"))
pytestmark = pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: the action's steps are for bash")


def run(folder: Path, **inputs: str) -> list[subprocess.CompletedProcess[str]]:
    """Every step whose condition holds, but for the installation: the command is put on PATH instead."""
    program = folder / "bin" / "rekindle"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rekindle "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    given = {name: inputs.get(name, value["default"]) for name, value in ACTION["inputs"].items()}
    done = []
    for step in ACTION["runs"]["steps"][1:]:
        if not given[re.search(r"inputs\.(\w+) != ''", step["if"])[1]]:  # type: ignore[index]
            continue
        env = {name: _filled(value, given) for name, value in step["env"].items()}
        env |= {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT / "src")}
        env["GITHUB_STEP_SUMMARY"] = str(folder / "summary.md")
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done.append(subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, check=False))
    return done


def _filled(value: str, given: dict[str, Any]) -> str:
    return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: given[match[1]], value)


@pytest.mark.parametrize(("required", "code"), [("sm_61 sm_75", 0), ("sm_61,sm_75", 0), ("sm_61 sm_90", 8)])
def test_a_wheel_that_lost_an_architecture_fails_the_job(tmp_path: Path, required: str, code: int) -> None:
    torch_like.wheel(tmp_path / "my dist", libraries={"torch/lib/libk.so": (("sm_61", "sm_75"),)})
    (step,) = run(tmp_path, wheel="my dist", require=required)
    assert step.returncode == code, step.stderr
    assert ("sm_90 is not in" in step.stdout) == (code == 8)


def test_a_failed_log_is_explained_in_the_summary(tmp_path: Path) -> None:
    (tmp_path / "build.log").write_text("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", encoding="utf-8")
    (step,) = run(tmp_path, log="build.log", gpu="Tesla K40c")
    assert step.returncode == 0
    assert "compute_35" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_a_wheel_without_what_it_must_hold_is_refused(tmp_path: Path) -> None:
    """The step was green and had checked nothing."""
    torch_like.wheel(tmp_path / "dist", libraries={"torch/lib/libk.so": (("sm_61",),)})
    (step,) = run(tmp_path, wheel="dist")
    assert step.returncode == 2
    assert "`require`" in step.stdout


@pytest.mark.parametrize(("wheel", "code"), [("dist/*.whl", 0), ("dist/*.none.whl", 14)])
def test_a_pattern_is_written_out(tmp_path: Path, wheel: str, code: int) -> None:
    torch_like.wheel(tmp_path / "dist", libraries={"torch/lib/libk.so": (("sm_61",),)})
    (step,) = run(tmp_path, wheel=wheel, require="sm_61")
    assert step.returncode == code, step.stderr
    assert ("no wheel matches" in step.stderr) == (code == 14)
