"""What a stranger's file or variable reaches between two modules, each of which thinks that the other looked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rekindle.build import env_command

posix = pytest.mark.skipif(os.name == "nt", reason="the programs of these tests are scripts of sh")


@posix
@pytest.mark.parametrize("named", ["sh", "./sh", "bin/sh"])
def test_a_shell_is_not_taken_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """`rekindle shell` started what SHELL names by itself: a `bash` in a downloads folder, where PATH has a dot."""
    (tmp_path / "bin").mkdir()
    for place in (tmp_path / "sh", tmp_path / "bin" / "sh"):
        place.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", encoding="utf-8")
        place.chmod(0o755)
    (tmp_path / "b.toml").write_text('source = "."\nname = "x"\nversion = "1"\nbackend = "cmake"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHELL", named)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    env_command.open_shell(env_command.EnvCommand(plan=tmp_path / "b.toml"), tell=lambda text: None)
    assert not (tmp_path / "ran").exists()
