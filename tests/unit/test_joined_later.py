"""What was judged is what is used, also where the two lie apart: a file and its copy, a word and its quotes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.core.run import Result
from rekindle.install import installer
from rekindle.install.installer import Pip, Request

_GOOD, _OTHER = "torch-2.6.0-cp311-cp311-linux_x86_64.whl", "torch-2.6.0-1-cp311-cp311-linux_x86_64.whl"


def _pip(monkeypatch: pytest.MonkeyPatch, took: list[list[str]], name: str, url: str) -> Pip:
    """A pip that would take this file, and puts it where it is told to."""
    report = {
        "metadata": {"name": "torch", "version": "2.6.0"},
        "download_info": {"url": url},
        "is_direct": "file:" in url,
    }

    def call(words: list[str], **_: Any) -> Result:
        took.append(list(map(str, words)))
        if "--report" in words and (to := str(words[words.index("--report") + 1])) != "-":
            Path(to).write_text(json.dumps({"install": [report]}), encoding="utf-8")
        if "--dest" in words:
            (Path(words[words.index("--dest") + 1]) / name).write_bytes(b"chosen")
        return Result(args=tuple(map(str, words)), code=0)

    monkeypatch.setattr(installer.run, "call", call)
    return Pip(SimpleNamespace(program=sys.executable))  # type: ignore[arg-type]


def test_what_an_earlier_try_left_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index had another build, which the plan refused; pip would choose it among all that lies there."""
    (tmp_path / _OTHER).write_bytes(b"refused")
    pip = _pip(monkeypatch, [], _GOOD, f"https://example.org/{_GOOD}")
    assert pip.download(Request(requirements=("torch==2.6.0",)), tmp_path) == [tmp_path / _GOOD]
    assert [path.name for path in tmp_path.iterdir()] == [_GOOD]


def test_the_copy_that_was_looked_at_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's folder may hold another file by then."""
    shelf, folder, took = tmp_path / "shelf" / _GOOD, tmp_path / "downloads", []  # type: ignore[var-annotated]
    request = Request(requirements=(str(shelf),))
    pip = _pip(monkeypatch, took, _GOOD, shelf.as_uri())
    pip.download(request, folder)
    pip.install(request, folder)
    assert took[-1][-1] == str(folder / _GOOD)
