"""The GitLab template: its jobs, run line by line as a runner's shell would, on a wheel that lost an architecture."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import torch_like

PROJECT = Path(__file__).parents[2]
HEAD, JOBS = (PROJECT / "templates" / "rekindle.yml").read_text(encoding="utf-8").split("\n---\n")
INPUTS: dict[str, Any] = yaml.safe_load(HEAD)["spec"]["inputs"]
SHELLS = [shell for shell in ("bash", "dash", "sh") if shutil.which(shell)]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: the template's lines are for a POSIX shell")


def jobs(**given: str) -> dict[str, Any]:
    """The jobs that GitLab would make: inputs filled in, `extends` followed, rules asked."""
    assert set(given) <= set(INPUTS)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        assert name in given or "default" in INPUTS[name], f"GitLab would refuse: {name} has no value"
        return given.get(name, INPUTS[name].get("default", ""))

    filled = yaml.safe_load(re.sub(r"\$\[\[ inputs\.(\w+) \]\]", value, JOBS))
    base = filled.pop(".rekindle")
    made = {}
    for name, job in filled.items():
        assert job.pop("extends") == ".rekindle"
        if any(_holds(rule["if"]) for rule in job["rules"]):
            made[name] = {**base, **job, "variables": {**base["variables"], **job.get("variables", {})}}
    return made


def _holds(condition: str) -> bool:
    match = re.fullmatch(r'"(.*)" != ""', condition)
    assert match, condition
    return bool(match[1])


def run(job: dict[str, Any], folder: Path, shell: str) -> subprocess.CompletedProcess[str]:
    """One shell for all lines, which stops at the first that fails. Installing is left out: it is put on PATH."""
    program = folder / "bin" / "rekindle"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rekindle "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT / "src"), **job["variables"]}
    words = [shell, "-e", "-c", "\n".join(job["script"])]
    return subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("required", "code"), [("sm_61 sm_75", 0), ("sm_61,sm_75", 0), ("sm_61 sm_90", 8), ("", 2)])
def test_a_wheel_that_lost_an_architecture_fails_the_job(tmp_path: Path, shell: str, required: str, code: int) -> None:
    torch_like.wheel(tmp_path / "my dist", libraries={"torch/lib/libk.so": (("sm_61", "sm_75"),)})
    made = jobs(source="git+https://host.example/rekindle", wheel="my dist", require=required)
    assert list(made) == ["rekindle-wheel"]
    done = run(made["rekindle-wheel"], tmp_path, shell)
    assert done.returncode == code, done.stderr
    assert ("sm_90 is not in" in done.stdout) == (code == 8)


@pytest.mark.long
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("gpu", ["", "Tesla K40c"])
def test_a_failed_log_is_explained_and_kept(tmp_path: Path, shell: str, gpu: str) -> None:
    (tmp_path / "build.log").write_text("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", encoding="utf-8")
    (job,) = jobs(source="x", log="build.log", gpu=gpu).values()
    assert job["rules"][0]["when"] == "on_failure"
    done = run(job, tmp_path, shell)
    assert done.returncode == 0, done.stderr
    assert job["artifacts"]["paths"] == ["rekindle.md"]
    assert "compute_35" in (tmp_path / "rekindle.md").read_text(encoding="utf-8")
    assert "compute_35" in done.stdout


def test_an_extension_that_cannot_be_built_fails_the_job(tmp_path: Path) -> None:
    (job,) = jobs(source="x", extension="no-such-folder/", gpu="GTX 1080 Ti").values()
    done = run(job, tmp_path, SHELLS[0])
    assert done.returncode != 0
    assert "error" in done.stderr


def test_nothing_asked_for_makes_no_job_and_the_source_must_be_named() -> None:
    assert jobs(source="x") == {}
    with pytest.raises(AssertionError, match="source"):
        jobs()
