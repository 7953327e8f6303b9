"""A uv project: the tables of `plan --as uv` lock and sync with the configured index; `install` beside a lock warns."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.artefacts import unverified
from support.command import rekindle_command

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def uv() -> str:
    found = shutil.which("uv")
    if found is None:
        unverified("uv is not installed")
    assert found is not None
    return found


def _project(folder: Path, tables: str) -> None:
    """What a person does who merges the printed tables into the project's own."""
    own = '[project]\nname = "mine"\nversion = "0.1"\n'
    (folder / "pyproject.toml").write_text(own + re.sub(r"^\[project\]$", "", tables, flags=re.M), encoding="utf-8")


def _run(uv: str, folder: Path, *words: str) -> str:
    env = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder / ".venv"), "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run([uv, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode and re.search(r"error sending request|dns error|timed out|Connect", done.stderr):
        unverified("uv cannot reach the package index")
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(("card", "torch"), [("GH200", "2.15.0"), ("GB10", "2.14.1")])
def test_the_printed_tables_lock_and_would_sync(uv: str, tmp_path: Path, card: str, torch: str) -> None:
    asked = ("plan", "--gpu", card, "--os", "linux", "--python", PYTHON, "--torch", torch, "--configured-index")
    seen = rekindle_command(*asked, "--as", "uv")
    assert seen.code == 0, seen.err
    _project(tmp_path, seen.out)
    _run(uv, tmp_path, "lock")
    lock = (tmp_path / "uv.lock").read_text(encoding="utf-8")
    assert re.search(rf'name = "torch"\nversion = "{re.escape(torch)}', lock)
    if sys.platform == "linux" and os.uname().machine == "aarch64":
        assert f"+ torch=={torch}" in _run(uv, tmp_path, "sync", "--dry-run")
    # A package that would pull another torch is held by the constraint.
    said = subprocess.run(
        [uv, "add", "--frozen", "torch!=" + torch],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if said.returncode == 0:
        done = subprocess.run([uv, "lock"], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode != 0
        assert "torch" in done.stderr


def test_install_beside_a_lock_says_that_sync_would_undo_it(uv: str, tmp_path: Path) -> None:
    _project(tmp_path, f'requires-python = "=={PYTHON}.*"\ndependencies = []\n')
    _run(uv, tmp_path, "sync")
    assert (tmp_path / "uv.lock").is_file()
    card = "GH200" if os.name != "nt" and os.uname().machine == "aarch64" else "RTX 3060"
    words = ("install", str(tmp_path / ".venv"), "--gpu", card, "--configured-index", "--installer", "uv", "--dry-run")
    seen = rekindle_command(*words)
    assert seen.code == 0, seen.err
    assert "`uv sync` would undo the install" in seen.err
    assert "rekindle plan --as uv" in seen.err


def test_uv_makes_the_lock_that_plan_cannot(uv: str, tmp_path: Path) -> None:
    """`--as pylock` is refused with two commands: the second writes every file with its hash, and uv takes it."""
    place = ("--gpu", "RTX 4090", "--os", "linux", "--python", PYTHON)
    asked = ("plan", *place, "--torch", "2.15.0", "--configured-index")
    refused = rekindle_command(*asked, "--as", "pylock")
    assert refused.code == 2 and f"uv pip compile requirements.txt --python-version {PYTHON}" in refused.err
    wishes = tmp_path / "requirements.txt"
    assert rekindle_command(*asked, "--as", "requirements", "-o", str(wishes)).code == 0
    where = ("--python-platform", "x86_64-manylinux_2_28")
    _run(uv, tmp_path, "pip", "compile", "requirements.txt", "--python-version", PYTHON, "-o", "pylock.toml", *where)
    lock = (tmp_path / "pylock.toml").read_text(encoding="utf-8")
    assert lock.count("[[packages]]") > 10 and "sha256" in lock and 'name = "torch"' in lock
    _run(uv, tmp_path, "venv", "-q", "--python", PYTHON)
    seen = _run(uv, tmp_path, "pip", "install", "--dry-run", "-r", "pylock.toml", *where)
    assert "+ torch==2.15.0" in seen
