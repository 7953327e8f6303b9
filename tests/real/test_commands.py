"""The printed commands against the package index itself, where it has what they ask for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from support.artefacts import unverified
from support.questions import questions, recommended

TAGS = {
    ("linux", "x86_64"): [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)]
    + ["manylinux2014_x86_64", "manylinux1_x86_64"],
    ("linux", "aarch64"): [f"manylinux_2_{minor}_aarch64" for minor in (28, 27, 17)] + ["manylinux2014_aarch64"],
    ("windows", "x86_64"): ["win_amd64"],
}


def test_pip_finds_every_pin_that_needs_no_index_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's own resolver, dry: name, version and tag of every pin; nothing is downloaded but metadata."""
    wanted: dict[tuple[str, ...], tuple[str, str, str]] = {}
    for question in questions():
        with monkeypatch.context() as patch:
            route = recommended(question, patch)
        if route.get("route") == "official-wheel" and route["on_configured_index"]:
            place = (route["system"], route["machine"], route["python"])
            wanted[(*route["requirements"], *place)] = place
    assert len(wanted) >= 5
    for words, (system, machine, python) in wanted.items():
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "-q", "--ignore-installed"]
        command += ["--only-binary=:all:", "--target", str(tmp_path), "--python-version", python]
        command += [word for tag in TAGS[(system, machine)] for word in ("--platform", tag)]
        done = subprocess.run([*command, *words[:-3]], capture_output=True, text=True, check=False, timeout=300)
        if "ConnectionError" in done.stderr or "Max retries" in done.stderr:
            unverified("the package index cannot be reached")
            return
        assert done.returncode == 0, (words, done.stderr[-500:])
