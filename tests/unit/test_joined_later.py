"""What was judged is what is used, also where the two lie apart: a file and its copy, a word and its quotes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.audit import cache
from rekindle.core import console, fetch
from rekindle.core.command import Command, Shell, in_sh
from rekindle.core.errors import BadInput, ChecksFailed, NotFound
from rekindle.core.findings import State
from rekindle.core.redact import secrets, without_secrets
from rekindle.core.run import Result
from rekindle.diagnose.answer import Diagnosis, LogOutcome
from rekindle.diagnose.report import markdown
from rekindle.formats.package import open_package
from rekindle.install import installer
from rekindle.install.command import undo
from rekindle.install.installer import Pip, Request
from rekindle.knowledge import tables, updates
from rekindle.model.environment import Environment
from rekindle.source import request
from rekindle.web import timeline
from rekindle.wheels.inspect.inspection import inspect
from rekindle.wheels.shelf import index
from support import small_wheels
from support.tarballs import make_tarball

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


@pytest.mark.skipif(not shutil.which("bash"), reason="bash reads the line")
@pytest.mark.parametrize("name", ["en\u202ev", "\x1b]0;x\x07", "a\u202e'b\\c $x\n", "\x85"])
def test_a_letter_that_is_not_shown_is_not_lost_from_a_command(name: str) -> None:
    """Without it the command that is pasted would name another folder, which lies beside it."""
    line = console.clean(Command("printf", "%s", name, system="linux"))
    told = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert told.stdout.decode() == name
    for shell in (Shell.CMD, Shell.POWERSHELL):
        with pytest.raises(BadInput):
            Command("printf", name, shell=shell)


@pytest.mark.parametrize("over", ["platlib", "purelib", "data/lib/python3.11/site-packages"])
def test_a_file_that_an_installer_lays_over_another_is_named(tmp_path: Path, over: str) -> None:
    """The torch that is read is not the one that is installed."""
    files = {**small_wheels.FILES, f"demo-1.0.data/{over}/torch/__init__.py": b"evil"}
    names = next(
        each
        for each in inspect(small_wheels.make(tmp_path, files, name="demo-1.0-cp311-cp311-linux_x86_64.whl")).findings
        if each.id == "names"
    )
    assert names.state is State.FAIL and "are one file" in names.found


@pytest.mark.skipif(os.name == "nt", reason="the program is a script")
def test_an_undo_asks_no_python_of_the_environment(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(NotFound):
        undo(program)
    assert not (tmp_path / "ran").exists()


def _exchanging(real: Callable[[Path], Any], place: Path, data: bytes) -> Callable[[Path], Any]:
    """Somebody's share: another file lies there as soon as this one was looked at."""

    def looked(path: Path, *more: Any, **named: Any) -> Any:
        seen = real(path, *more, **named)
        if path == place:
            place.write_bytes(data)
        return seen

    return looked


def test_a_tarball_that_is_exchanged_after_its_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = {name: [("pytorch/version.txt", "2.6.0\n"), ("pytorch/setup.py", name)] for name in ("good", "evil")}
    good, evil = (make_tarball(tmp_path / f"{name}.tar.gz", body) for name, body in bodies.items())
    found = request.sha256_of(good)
    monkeypatch.setattr(request, "sha256_of", _exchanging(request.sha256_of, good, evil.read_bytes()))
    with pytest.raises(BadInput, match="exchanged while it was read"):
        request.unpack(str(good), tmp_path / "out", sha256=str(found))
    assert not (tmp_path / "out").exists()


def test_a_bundle_of_tables_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "b.zip"
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("bundle.json", "good")
    data = bundle.read_bytes()
    for name in ("read_bytes", "sha256_of"):
        where = updates.files if name == "read_bytes" else updates
        if hasattr(where, name):
            monkeypatch.setattr(where, name, _exchanging(getattr(where, name), bundle, data.replace(b"good", b"evil")))
    content, digest = updates._content(bundle, hashlib.sha256(data).hexdigest())
    assert content == {"bundle.json": b"good"} and digest == hashlib.sha256(data).hexdigest()


def test_what_lies_where_a_download_goes_is_not_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a hash a stranger's `.part` in the current folder would be taken for ours."""

    def _gives(pool: Any, url: str, part: Path, most: int | None) -> None:
        with part.open("ab") as stream:
            stream.write(b"good")

    (tmp_path / "x.tar.gz.part").write_bytes(b"evil")
    monkeypatch.setattr(fetch, "_receive", _gives)
    assert fetch.download("http://127.0.0.1:9/x.tar.gz", tmp_path / "x.tar.gz").read_bytes() == b"good"


def test_a_folder_that_a_record_names_is_no_link(tmp_path: Path) -> None:
    outside, site = tmp_path / "outside", tmp_path / "site-packages"
    (outside).mkdir()
    (outside / "secret.txt").write_text("x", encoding="utf-8")
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("", encoding="utf-8")
    (site / "torch-2.6.0.dist-info").mkdir()
    (site / "torch-2.6.0.dist-info" / "RECORD").write_text("linked/secret.txt,,\n", encoding="utf-8")
    try:
        (site / "linked").symlink_to(outside, target_is_directory=True)
    except OSError:
        pytest.skip("UNVERIFIED: no links can be made here")
    assert not [name for name in open_package(site / "torch").files if "secret" in name]


def test_an_answer_is_not_kept_when_tables_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Environment(
        root="/e", os="linux", kind="venv", python=None, site_packages=(), interpreter=None, has_headers=False
    )
    monkeypatch.setattr(tables, "overlay_folder", lambda: tmp_path)
    before = cache._question(place, ["GTX 1080"], None)
    (tmp_path / "gpus.json").write_text("{}", encoding="utf-8")
    over = cache._question(place, ["GTX 1080"], None)
    monkeypatch.setattr(tables, "update_folder", lambda: tmp_path / "bundle-2")
    assert len({before, over, cache._question(place, ["GTX 1080"], None)}) == 3


def test_an_older_list_is_known_whoever_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no password of an address is written down."""
    monkeypatch.setattr(index.paths, "data_folder", lambda name: tmp_path / name)
    index._not_older("https://me:hunter22x@example.org/shelf", 5, "the list")
    assert "hunter22x" not in (tmp_path / "shelves.json").read_text(encoding="utf-8")
    with pytest.raises(ChecksFailed):
        index._not_older("https://example.org/shelf", 4, "the list")
