"""What `plan --machine FOLDER --as requirements` writes, as pip and uv themselves take it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import labs, small_wheels
from support.command import rekindle_command

PIN = re.compile(r"^(torch\w*)==(\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("lab")
    words = ("--machine", str(labs.mixed(folder / "nodes")), "--as", "requirements", "-o", str(folder / "lists"))
    assert rekindle_command("plan", *words).code == 0
    found = sorted((folder / "lists").glob("*.txt"))
    assert len(found) == 5
    return found


def _stand_ins(text: str, folder: Path) -> dict[str, str]:
    """Wheels of the names and versions that a list pins, in place of the index that it names."""
    pins = dict(PIN.findall(text))
    assert set(pins) == {"torch", "torchvision", "torchaudio"}
    for name, version in pins.items():
        info = f"{name}-{version}.dist-info"
        inside = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        small_wheels.make(folder, inside, name=f"{name}-{version}-py3-none-any.whl")
    return pins


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_every_list_is_taken(tool: str, lists: list[Path], tmp_path: Path) -> None:
    uv = shutil.which("uv")
    assert uv is not None
    start = [sys.executable, "-m", "pip"] if tool == "pip" else [uv, "pip"]
    target = ["--ignore-installed"] if tool == "pip" else ["--python", sys.executable, "--reinstall"]
    for number, file in enumerate(lists):
        folder = tmp_path / str(number)
        pins = _stand_ins(file.read_text(encoding="utf-8"), folder)
        words = ["install", "--dry-run", *target, "--no-index", "--find-links", str(folder), "-r", str(file)]
        done = subprocess.run([*start, *words], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr[-500:]
        said = done.stdout + done.stderr
        assert all(version in said for version in pins.values()), said[-500:]
