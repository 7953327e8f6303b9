"""A project of scikit-build-core for two Pythons: two wheels, though its build file names no backend."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from rekindle.fleet import announcement
from rekindle.machine.probe import look
from support.artefacts import unverified
from support.command import rekindle_command
from support.cuda import project


@pytest.mark.skipif(sys.platform != "linux", reason="UNVERIFIED: a compiler is on PATH on Linux only")
def test_each_python_gets_its_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = announcement.pythons_here(look())
    wanted = sorted((each for each in found if int(each[2:]) >= 10), key=lambda each: int(each[2:]))[:2]
    if len(wanted) < 2:
        unverified("there is only one Python of 3.10 or newer on PATH")
    shutil.copytree(project("ember"), tmp_path / "ember")
    lines = [f"python = {json.dumps(wanted)}", f'arch = "{os.uname().machine}"', 'project = "ember"', 'cuda = "cpu"']
    matrix = tmp_path / "matrix.toml"
    build = '[projects.ember]\nbuild = "ember/build.toml"\ndisk_gb = 0.1\nmemory_gb = 0.5\n'
    matrix.write_text("\n".join([*lines, build]), encoding="utf-8")
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path / "cache"))
    seen = rekindle_command("fleet", "run", str(matrix), "--shelf", str(tmp_path / "shelf"), "--json")
    assert seen.code == 0, seen.out + seen.err
    assert seen.json()["counts"] == {"done": 2}
    tags = sorted(path.name.split("-")[2] for path in (tmp_path / "shelf" / "wheels").glob("*.whl"))
    assert tags == sorted(f"cp{each.replace('.', '')}" for each in wanted)
