"""The real nvcc.exe, asked by the doctor as Windows.

Wine cannot vouch for what nvcc does with a real `cl`; without one it refuses even a dry run, which is tested.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.artefacts import wheel
from support.pace import seconds
from support.windows_python import WindowsPython
from support.wine import windows_path

PROJECT = Path(__file__).resolve().parent.parent.parent
VERSION = "13.0.88"


@pytest.fixture
def toolkit(windows: WindowsPython) -> Iterator[str]:
    """CUDA 13.0's compiler where an installer puts it, as Windows names the place."""
    folder = windows.bench.drive / "Program Files/NVIDIA GPU Computing Toolkit/CUDA/v13.0"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("nvidia-cuda-nvcc", "nvidia-nvvm"):
        with zipfile.ZipFile(wheel(f"{name}=={VERSION}", platform="win_amd64")) as archive:
            archive.extractall(folder.parent / "unpacked")
    shutil.move(folder.parent / "unpacked/nvidia/cu13", folder)
    shutil.rmtree(folder.parent / "unpacked")
    yield r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v13.0"
    shutil.rmtree(folder)


def test_the_doctor_asks_the_real_nvcc(windows: WindowsPython, toolkit: str) -> None:
    env = {"PYTHONPATH": windows_path(PROJECT / "src"), "CUDA_PATH": toolkit}
    done = windows.bench.call([windows.executable, "-m", "rekindle", "doctor", "--json"], env=env, timeout=seconds(300))
    found = json.loads(done.stdout)["machine"]["toolkits"]
    assert [(one["root"], one["version"]) for one in found if one["root"] == toolkit] == [(toolkit, VERSION)]
    here = next(one for one in found if one["root"] == toolkit)
    # What NVIDIA's release notes of 13.0 say: Turing is the oldest, Volta and older are gone.
    assert here["targets"][0] == "sm_75"
    assert "sm_120" in here["targets"]
    assert "sm_70" not in here["targets"]
    assert "CUDA_PATH" in here["found_by"]
    # Without a compiler on PATH nvcc's dry run names no ptxas; its profile does, and it is the toolkit's own.
    assert here["trouble"] is None
    assert here["ptxas"]["path"].lower().startswith(toolkit.lower())
