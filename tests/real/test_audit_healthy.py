"""Healthy environments, made from the index: `rekindle audit` has nothing to say of any of them.

Each is made, audited and removed again, so that no more than one of them takes room at a time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from rekindle.audit.audit import audit
from rekindle.core.findings import State
from rekindle.model.card import Capability, NamedCard
from support.artefacts import unverified

H200 = NamedCard(name="H200", capability=Capability(9, 0))
# The index's torch for aarch64 was a CPU build up to 2.8; for x86_64 it brings CUDA and 4 GB of libraries.
TORCH = "2.7.1"
ENVIRONMENTS = {
    "numpy and scipy": ("numpy", "scipy"),
    "torch": (f"torch=={TORCH}", "numpy"),
    "torch with torchvision and torchaudio": (f"torch=={TORCH}", "torchvision==0.22.1", "torchaudio==2.7.1", "numpy"),
    "opencv": ("opencv-python-headless",),
    "pillow and matplotlib": ("pillow", "matplotlib"),
    "pandas and pyarrow": ("pandas", "pyarrow"),
    "scikit-learn": ("scikit-learn",),
    "numba and llvmlite": ("numba", "llvmlite"),
    "onnxruntime": ("onnxruntime",),
    "numpy 1 and what was built with it": ("numpy==1.26.4", "pandas==2.1.4", "scipy==1.11.4"),
    "wheels for many Pythons": ("cryptography", "lxml", "psutil", "grpcio", "h5py"),
    "tokenizers, safetensors and polars": ("tokenizers", "safetensors", "polars", "regex"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_nothing_is_said_of_a_healthy_environment(name: str, tmp_path: Path) -> None:
    if sys.platform != "linux":
        unverified("the environments are made for Linux")
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False)
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q", "--no-compile"]
    command += ["--only-binary=:all:", *ENVIRONMENTS[name]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        unverified(f"{name} could not be installed: {done.stderr.strip()[-200:]}")
    answer = audit(folder, cards=(H200,))
    wrong = [*answer.findings, *(finding for module in answer.modules for finding in module.findings)]
    assert [f"{finding.state.value} {finding.found}" for finding in wrong] == []
    assert answer.state is State.PASS
    assert answer.examined > 0
    shutil.rmtree(folder)
