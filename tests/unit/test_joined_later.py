"""What was judged is what is used, also where the two lie apart: a file and its copy, a word and its quotes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.core import console
from rekindle.core.command import in_sh
from rekindle.core.redact import secrets, without_secrets
from rekindle.core.run import Result
from rekindle.diagnose.answer import Diagnosis, LogOutcome
from rekindle.diagnose.report import markdown
from rekindle.install import installer
from rekindle.install.installer import Pip, Request
from rekindle.web import timeline

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


_DIGEST, _PEM = "authorization: digest aaaa", "-----BEGIN PRIVATE KEY-----"


@pytest.mark.parametrize(
    "words",
    [
        (f"/x/{_DIGEST}", f"/$(touch RAN)$/{_PEM}", f"/$(touch RAN)'{_DIGEST}", "/y/-----END X-----"),
        (f"/x/'{_DIGEST}", "/$(touch RAN)"),
        (f"/x/{_PEM}", "/$(touch RAN)/-----END X-----/$(touch RAN)"),
        ("/x/token='abcdef", "/$(touch RAN)"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="sh reads the lines")
def test_what_is_masked_leaves_no_quote_open(words: tuple[str, ...], tmp_path: Path) -> None:
    """A folder can be called anything, and its name stands in lines that are pasted together."""
    text = secrets("\n".join(f"export V={in_sh(word)}" for word in words))
    done = subprocess.run(["sh", "-c", text], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert "<secret>" in text and done.returncode == 0 and not list(tmp_path.iterdir()), (text, done)


def test_the_name_of_a_secret_is_masked_like_its_value() -> None:
    token = "ghp_" + "A1b2" * 9
    assert token not in str(without_secrets({"set_aside": {f"{token}.whl": "x"}}))
    bar = timeline.Bar(name=token, target=token, kind="cuda", slot=0, start=0.0, seconds=1.0, peak_mb=None)
    assert token not in str(timeline.trace(timeline.Timeline(bars=(bar,), slots=1, runs=1, wall=1.0, work=1.0)))


_LONG = "hunter" * 20


@pytest.mark.parametrize(
    "text",
    [
        f"what `https://me:{_LONG}` asks for",
        f"https://me:{_LONG}\nmore",
        f"no such file: `https:/me:{_LONG}@h/x`",
        f"https://me:{_LONG}",
    ],
)
def test_a_password_is_masked_also_where_its_host_is_cut_off(text: str) -> None:
    assert "hunter" not in secrets(text)


@pytest.mark.parametrize(
    "text", ["http://[::1]:8080", "http://h:3128", "https://h:443/x `http://h:80`", "http://HOST:PORT"]
)
def test_a_port_is_no_password(text: str) -> None:
    assert secrets(text) == text


def test_a_secret_is_not_broken_before_it_is_known() -> None:
    for pad in range(60):
        said = console.wrap("y" * pad + " the server said password: Tr0ub4dor3xyz", indent=" " * 9)
        assert "Tr0ub4dor3xyz" not in said


def test_a_name_of_a_log_stays_a_name_in_markdown() -> None:
    found = Diagnosis(source="a`<img src=x>`b\n# heading", outcome=LogOutcome.UNKNOWN, summary="nothing")
    assert "`` a`<img src=x>`b # heading ``" in markdown(found)
