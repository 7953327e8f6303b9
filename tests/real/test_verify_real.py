"""A real torch, installed and verified; the GPU checks where there is a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.core.paths import venv_python
from rekindle.wheels.verify import trial, verify
from support import artefacts


@pytest.fixture(scope="module")
def environment() -> Path:
    """An environment with torch's CPU build, made once and kept with the other artefacts."""
    return artefacts.environment("torch-2.13.0", "torch==2.13.0", "numpy")


def test_a_real_torch_passes_all_that_needs_no_card(environment: Path) -> None:
    done = verify.verify(environment)
    states = {check.id: check.state for check in done.checks}
    for name in ("file", "record", "tags", "closure", "install", "import", "version", "config", "cpu", "numpy"):
        assert states[name] is State.PASS, [check for check in done.checks if check.id == name]
    if not done.cards:
        assert {states[name] for name in verify.ON_CARD} == {State.UNVERIFIED}
        assert done.state is State.UNVERIFIED


def test_the_gpu_checks_compute_what_they_say(environment: Path) -> None:
    """Their arithmetic, on the CPU standing in for a card; what only a card has cannot be tried this way."""
    script = Path(trial._SCRIPT)
    program = f"""
import sys, importlib.util, torch
spec = importlib.util.spec_from_file_location("ask_torch", {str(script)!r})
ask = importlib.util.module_from_spec(spec); spec.loader.exec_module(ask); ask = ask.checks
torch.cuda.get_device_capability = lambda device: (9, 0)
device = torch.device("cpu")
for name in ("matmul_fp32", "matmul_fp16", "matmul_bf16", "matmul_tf32", "cublas", "fft", "linalg", "training"):
    print(name, getattr(ask, name)(torch, device))
try:
    ask.close(torch, torch.ones(3), torch.tensor([1.0, 1.0, 1.1]), 1e-3, "this")
except ask.Wrong as wrong:
    print("wrong", wrong)
"""
    done = subprocess.run(
        [str(venv_python(environment)), "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 9
    assert "wrong this is off by 9.1e-02" in done.stdout
