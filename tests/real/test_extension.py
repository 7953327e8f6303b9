"""Our example extension built for real: against a CUDA torch of the index, with a real nvcc, and looked at."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from rekindle.extensions.building import build
from rekindle.extensions.cards import cards_for
from rekindle.findings import State
from rekindle.machine.look import look
from support.artefacts import cache, unverified

EXAMPLE = Path(__file__).parents[2] / "examples" / "scale_add"


@pytest.fixture(scope="module")
def environment() -> Path:
    """A venv with torch 2.11.0 (CUDA 13.0), which the index has for both processors. Kept between runs: 4 GB."""
    folder = cache() / "torch-2.11.0-cu130"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [python, "-m", "pip", "install", "-q", "torch==2.11.0", "numpy"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
        if done.returncode:
            unverified(f"torch could not be installed: {done.stderr[-200:]}")
        (folder / "complete").touch()
    return folder


@pytest.mark.long
def test_the_example_holds_exactly_the_asked_code(environment: Path, tmp_path: Path) -> None:
    if sys.platform != "linux":
        unverified("the torch with CUDA of the index is for Linux")
    machine = look()
    if not any(kit.version and kit.version.major == 13 and kit.nvcc for kit in machine.toolkits):
        unverified("there is no CUDA 13 toolkit on this machine")
    cards, _ = cards_for(["H200", "sm_75"], None, None)
    report = build(str(EXAMPLE), environment, cards=cards, machine=machine, output=tmp_path)
    assert report.state is State.PASS, report.findings
    assert report.targets == {"sm_75": 1, "sm_90": 1}
    assert report.wheel is not None
    assert Path(report.wheel).is_file()
