"""Which Pythons a worker offers."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from rekindle.core.version import Version
from rekindle.fleet import announcement
from rekindle.machine.model import FoundPython, Machine

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.skipif(os.name == "nt", reason="the Pythons here are shell scripts")
def test_every_python_on_path_that_answers_counts_and_the_probe_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, body in {"python3.8": "echo 3.8", "python3.19": "exit 3", "python3.20": "echo hello"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    probed = FoundPython(path="/usr/bin/python3", version=Version("3.8.20"))
    broken = FoundPython(path="/usr/bin/python4", version=Version("3.9.1"), trouble="it does not start")
    empty = Machine(os="linux", arch="x86_64")
    assert announcement.pythons_here(empty) == {"3.8": str(tmp_path / "python3.8")}
    found = announcement.pythons_here(Machine(os="linux", arch="x86_64", pythons=(probed, broken)))
    assert found == {"3.8": "/usr/bin/python3"}


def test_this_python_answers_for_itself() -> None:
    # Windows' embedded Python cannot make environments, so a worker does not offer it.
    able = importlib.util.find_spec("venv") is not None
    assert announcement._python_version(sys.executable) == (OWN if able else None)
    assert announcement._python_version(str(Path(sys.executable).with_name("no-such-python"))) is None
