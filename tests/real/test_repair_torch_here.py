"""The index's torch wheel for this machine, repaired: other tools take it, pip installs it, it imports and computes,
`verify` tries it in an environment of its own, and the shelf hands it out."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rekindle.wheels.repair import repair
from support import artefacts, small_wheels
from support.artefacts import unverified
from support.command import rekindle_command
from support.compiled import Compiler

pytestmark = pytest.mark.long

TORCH = "2.7.1"


@pytest.fixture(scope="module")
def wheel() -> Path:
    if (sys.platform, platform.machine()) != ("linux", "aarch64"):
        unverified("the index's wheel for this machine requires 3 GB of CUDA packages; that for aarch64 is 99 MB")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return artefacts.wheel(f"torch=={TORCH}", platform="manylinux_2_28_aarch64", python=python)


@pytest.fixture(scope="module")
def repaired(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With three libraries added."""
    root = tmp_path_factory.mktemp("repaired")
    (root / "built").mkdir()
    gcc = Compiler(root / "built", "")
    names = ("libone.so", "libtwo.so.2", "libthree.so")
    libraries = [gcc.build(name, offers=[f"offer_{index}"]) for index, name in enumerate(names)]
    done = repair.repair(wheel, root / "out", add=[str(path) for path in libraries])
    assert done.output is not None
    assert [item.member for item in done.added] == [f"torch/lib/{name}" for name in names]
    return done.output


def _says(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_other_tools_find_nothing_amiss(wheel: Path, repaired: Path, tmp_path: Path) -> None:
    small_wheels.check_record(repaired)
    _says(sys.executable, "-m", "zipfile", "-t", str(repaired))
    # W002 to W009 are about what torch itself puts where (duplicate files, several top-level folders).
    _says(sys.executable, "-m", "check_wheel_contents", "--ignore", "W002,W004,W005,W007,W009", str(repaired))
    # `wheel unpack` checks every hash of RECORD.
    _says(sys.executable, "-m", "wheel", "unpack", str(repaired), "-d", str(tmp_path))
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(repaired) as after:
        old = {i.filename: i.CRC for i in before.infolist() if not i.filename.endswith(("/", "/RECORD"))}
        new = {i.filename: i.CRC for i in after.infolist()}
    assert old.items() <= new.items()


def test_pip_installs_it_and_torch_computes(repaired: Path, tmp_path: Path) -> None:
    _says(sys.executable, "-m", "venv", str(tmp_path / "env"))
    python = str(tmp_path / "env/bin/python")
    _says(python, "-m", "pip", "install", "-q", str(repaired))
    program = (
        "import torch, ctypes, pathlib; lib = pathlib.Path(torch.__file__).parent / 'lib';"
        "print(ctypes.CDLL(str(lib / 'libtwo.so.2')).offer_1(), (torch.ones(3, 3) @ torch.ones(3, 3)).sum().item())"
    )
    assert _says(python, "-c", program).split() == ["1", "27.0"]
    # pip knows every file: nothing is left behind.
    _says(python, "-m", "pip", "uninstall", "-q", "-y", "torch")
    site = next((tmp_path / "env/lib").glob("python*/site-packages"))
    assert not list(site.glob("torch/lib/*.so*"))


def test_verify_tries_it_in_an_environment_of_its_own_and_the_shelf_hands_it_out(
    repaired: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / repaired.name
    shutil.copy2(repaired, mine)
    said = rekindle_command("verify", str(mine), "--json").json()
    states = {check["id"]: check["state"] for check in said["checks"]}
    for name in ("file", "record", "tags", "closure", "install", "import", "version", "config", "cpu"):
        assert states[name] == "PASS", [check for check in said["checks"] if check["id"] == name]
    monkeypatch.setenv("REKINDLE_SHELF", str(tmp_path / "shelf"))
    assert rekindle_command("shelf", "add", str(mine)).code == 0
    into = tmp_path / "from-shelf"
    index = (tmp_path / "shelf" / "simple").as_uri()
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--index-url", index]
    _says(*pip, f"torch=={TORCH}", "-d", str(into))
    assert next(into.glob("*.whl")).read_bytes() == mine.read_bytes()
