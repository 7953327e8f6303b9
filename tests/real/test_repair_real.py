"""Real wheels changed, and what other tools say of the result."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import BinaryIO

import pytest
from packaging.utils import parse_wheel_filename

from rekindle.wheels.repair import repair
from support import artefacts, small_wheels


def _says(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_small_wheel_still_installs_unpacks_and_passes_every_checker(tmp_path: Path) -> None:
    wheel = artefacts.wheel("markupsafe==3.0.2")
    extra = tmp_path / "notice.txt"
    extra.write_text("added\n", encoding="utf-8")
    made = repair.repair(
        wheel, tmp_path / "out", add=[f"{extra}=markupsafe/notice.txt"], remove=["_speedups.pyi"]
    ).output
    assert made is not None
    small_wheels.check_record(made)
    _says("-m", "zipfile", "-t", str(made))
    _says("-m", "wheel", "unpack", str(made), "-d", str(tmp_path / "unpacked"))
    _says("-m", "check_wheel_contents", "--ignore", "W002,W005,W009", str(made))
    _says("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(tmp_path / "site"), str(made))
    assert (tmp_path / "site/markupsafe/notice.txt").read_text(encoding="utf-8") == "added\n"
    assert not (tmp_path / "site/markupsafe/_speedups.pyi").exists()
    # The wheel unpacked by `wheel` and packed again is the same wheel, file by file.
    again = repair.pack(next((tmp_path / "unpacked").iterdir()), tmp_path / "again").output
    assert again is not None
    assert parse_wheel_filename(again.name) == parse_wheel_filename(wheel.name)
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(made) as two:
        assert {i.filename: i.CRC for i in one.infolist() if "RECORD" not in i.filename} == {
            i.filename: i.CRC for i in two.infolist() if "RECORD" not in i.filename
        }


@pytest.mark.parametrize("platform", ["manylinux_2_28_x86_64", "win_amd64"])
def test_every_unchanged_file_of_a_torch_wheel_keeps_its_bytes(tmp_path: Path, platform: str) -> None:
    wheel = artefacts.wheel("torch==2.7.1", platform=platform)
    extra = tmp_path / "added.txt"
    extra.write_bytes(b"x" * 100_000)
    made = repair.repair(wheel, tmp_path / "out", add=[str(extra)]).output
    twice = repair.repair(wheel, tmp_path / "twice", add=[str(extra)]).output
    assert made is not None and twice is not None
    assert _hash(made) == _hash(twice)
    _says("-m", "zipfile", "-t", str(made))
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(made) as after:
        old = {i.filename: i for i in before.infolist() if not i.filename.endswith(("/", "/RECORD"))}
        new = {i.filename: i for i in after.infolist() if not i.filename.endswith("/RECORD")}
        assert set(new) == {*old, "torch/lib/added.txt", "torch-2.7.1.dist-info/sboms/rekindle.cdx.json"}
        with wheel.open("rb") as one, made.open("rb") as two:
            for name, info in old.items():
                assert _raw(one, info) == _raw(two, new[name]), name
        record = next(name for name in after.namelist() if name.endswith("/RECORD"))
        lines = [line.split(",")[0] for line in after.read(record).decode().splitlines()]
        assert sorted(lines) == sorted([*new, record])


def _raw(stream: BinaryIO, info: zipfile.ZipInfo) -> str:
    stream.seek(info.header_offset)
    head = stream.read(30)
    stream.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1)
    return hashlib.sha256(stream.read(info.compress_size)).hexdigest()


def _hash(path: Path) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as stream:
        while data := stream.read(1 << 20):
            sha.update(data)
    return sha.hexdigest()
