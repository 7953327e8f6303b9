"""How this Rekindle is started and installed: what is printed works where it is pasted."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from rekindle.cli.main import GROUPS, VERBS
from rekindle.core import own
from rekindle.core.command import Command, Shell
from rekindle.core.errors import UsageError
from support.artefacts import unverified
from support.command import rekindle_command

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh() -> None:
    own.program.cache_clear()


def _installed_from(monkeypatch: pytest.MonkeyPatch, told: dict[str, object] | None) -> None:
    class Found:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return json.dumps(told) if told is not None else None

    monkeypatch.setattr(metadata, "distribution", lambda name: Found())


def test_the_name_of_the_distribution_is_that_of_the_project() -> None:
    assert f'\nname = "{own.DISTRIBUTION}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_name_is_free_or_ours() -> None:
    """`rekindle` is somebody else's on the index: what is printed must not install that."""
    words = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--retries", "0", own.DISTRIBUTION]
    seen = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, encoding="utf-8", check=False)
    if seen.returncode and "No matching distribution" not in seen.stderr:
        unverified("no package index can be asked")
    assert seen.returncode != 0


@pytest.mark.parametrize(
    ("told", "source", "elsewhere"),
    [
        (None, "rekindle-torch[serve]", "rekindle-torch=="),
        (
            {"url": "https://host/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc123"}},
            "rekindle-torch[serve] @ git+https://host/x.git@abc123",
            "rekindle-torch @ git+https://host/x.git@abc123",
        ),
        (
            {"url": "https://host/rekindle-0.2.0.tar.gz", "archive_info": {}},
            "rekindle-torch[serve] @ https://host/rekindle-0.2.0.tar.gz",
            "rekindle-torch @ https://host/rekindle-0.2.0.tar.gz",
        ),
    ],
)
def test_more_of_it_comes_from_where_it_came(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, object] | None, source: str, elsewhere: str
) -> None:
    _installed_from(monkeypatch, told)
    assert own.source("serve") == source
    assert own.elsewhere().startswith(elsewhere)


def test_a_folder_is_named_here_and_its_remote_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "re kindle"
    (folder / ".git").mkdir(parents=True)
    _installed_from(monkeypatch, {"url": folder.as_uri(), "dir_info": {"editable": True}})
    assert own.source("serve") == f"{folder}[serve]"
    with pytest.raises(UsageError, match="installed from a folder"):
        own.elsewhere()
    text = '[remote "origin"]\n\turl = https://me:token@host.org/me/rekindle.git\n\tfetch = +refs\n'
    (folder / ".git" / "config").write_text(text, encoding="utf-8")
    assert own.elsewhere() == "rekindle-torch @ git+https://host.org/me/rekindle"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("rekindle-torch==0.2.0", "rekindle-torch[sign]==0.2.0"),
        ("rekindle-torch[serve] @ https://host/x.whl", "rekindle-torch[serve,sign] @ https://host/x.whl"),
        ("git+https://host/x.git@main", "rekindle-torch[sign] @ git+https://host/x.git@main"),
        ("./rekindle", "./rekindle[sign]"),
    ],
)
def test_an_extra_goes_with_what_is_named(given: str, wanted: str) -> None:
    assert own.elsewhere(given, "sign") == wanted


def test_a_clone_is_named_at_the_commit_that_its_server_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        unverified("no git here")
    clone = tmp_path / "clone"

    def git(*words: str) -> str:
        name = ["-c", "user.name=x", "-c", "user.email=x@x.org"]
        done = subprocess.run(["git", "-C", str(clone), *name, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    clone.mkdir()
    git("init", "-q")
    git("remote", "add", "origin", "git@host.org:me/rekindle.git")
    git("commit", "-q", "--allow-empty", "-m", "one")
    _installed_from(monkeypatch, {"url": clone.as_uri(), "dir_info": {"editable": True}})
    assert own.elsewhere() == "rekindle-torch @ git+https://host.org/me/rekindle"
    pushed = git("rev-parse", "HEAD")
    git("update-ref", "refs/remotes/origin/main", pushed)
    assert own.elsewhere() == f"rekindle-torch @ git+https://host.org/me/rekindle@{pushed}"


def test_started_as(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scripts = tmp_path / ".venv" / "bin"
    scripts.mkdir(parents=True)
    name = "rekindle.exe" if sys.platform == "win32" else "rekindle"
    (scripts / name).write_text("#!/bin/sh\n", encoding="utf-8")
    (scripts / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(scripts / name)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own.program() == (str(Path(".venv", "bin", "rekindle")),)
    own.program.cache_clear()
    monkeypatch.setenv("PATH", str(scripts))
    assert own.program() == ("rekindle",)
    own.program.cache_clear()
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "rekindle" / "__main__.py")])
    assert own.program()[1:] == ("-m", "rekindle")
    own.program.cache_clear()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".cache" / "uv" / "archive-v0" / "x"))
    _installed_from(monkeypatch, {"url": "https://host/x.git", "vcs_info": {"vcs": "git"}})
    assert own.program() == ("uvx", "--from", "rekindle-torch @ git+https://host/x.git", "rekindle")


def _started(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rekindle", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, encoding="utf-8", cwd=folder, env=env, check=False)


def test_every_line_names_the_program_that_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `pip install` into a venv that is not active, `rekindle` alone is not found."""
    monkeypatch.chdir(tmp_path)
    seen = _started("gpu", "GTX 9999", folder=tmp_path)
    assert f"`{Command(own.shown(Path(sys.executable)), '-m', 'rekindle')} gpu --list`" in " ".join(seen.stderr.split())
    # What is for another computer is not: there Rekindle is started in another way.
    other = "windows" if sys.platform != "win32" else "linux"
    seen = _started("plan", "--gpu", "Tesla K40c", "--os", other, "--torch", "2.7.1", folder=tmp_path)
    assert "rekindle build" in seen.stdout and "-m rekindle build" not in seen.stdout


@pytest.mark.long
@pytest.mark.parametrize("shell", list(Shell))
def test_a_shell_that_is_told(shell: Shell) -> None:
    words = ("plan", "--gpu", "GTX 1080 Ti", "--os", "windows", "--python", "3.12", "--json")
    (command, *_) = rekindle_command(*words, "--shell", shell.value).json()["recommended"]["commands"]
    assert '"torch' in command or "torch==" in command
    assert rekindle_command(*words).json()["recommended"]["commands"]


def test_help_shows_everyday_verbs_and_all_of_them_when_asked() -> None:
    assert sorted(VERBS) == sorted(verb for group in GROUPS.values() for kind in group for verb in kind)
    short, long = rekindle_command("--help").out, rekindle_command("help", "--all").out
    everyday = [verb for often, _ in GROUPS.values() for verb in often]
    assert len(everyday) <= 12
    assert all(f"\n  {verb} " in short for verb in everyday) and "\n  factory" not in short
    assert all(f"\n  {verb} " in long for verb in VERBS)
    assert "rekindle gpu" in rekindle_command("help", "gpu").out
    assert rekindle_command("help", "nonsense").code == 2


@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("https://host.example/me/rekindle.git", "https://host.example/me/rekindle"),
        ("https://me:token@host.example/me/rekindle", "https://host.example/me/rekindle"),
        ("git@host.example:me/rekindle.git", "https://host.example/me/rekindle"),
        ("ssh://git@host.example/group/sub/rekindle.git", "https://host.example/group/sub/rekindle"),
        ("../somewhere", None),
        ("/srv/git/rekindle.git", None),
    ],
)
def test_the_page_of_a_clone_has_no_token(tmp_path: Path, remote: str, page: str | None) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {remote}\n')
    assert own.page_of_clone(tmp_path) == page


def test_the_page_of_what_was_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = {"url": "https://host.example/me/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}
    _installed_from(monkeypatch, fetched)
    assert own.page() == "https://host.example/me/x"
    _installed_from(monkeypatch, None)
    monkeypatch.setattr(metadata, "metadata", lambda name: _Named())
    assert own.page() == "https://host.example/me/y"


class _Named:
    def get_all(self, name: str) -> list[str]:
        return ["Issues, https://host.example/me/y/issues", "Homepage, https://host.example/me/y"]


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("fleet", "certs", "-o", "certs"), "fleet"),
        (("fleet", "run", "matrix.toml"), "fleet"),
        (("shelf", "key"), "sign"),
        (("serve",), "serve"),
        (("mcp",), "mcp"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else each,
)
def test_what_the_plain_install_lacks_is_named_with_what_brings_it(
    words: tuple[str, ...], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fleet certs` and a local `fleet run` made certificates first, and ended with an internal error."""
    extras = {"cryptography", "distributed", "starlette", "uvicorn", "mcp"}
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in extras else found(name, *a))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKINDLE_SHELF", str(tmp_path / "shelf"))
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "CMakeLists.txt").write_text("project(p CXX)\n")
    (tmp_path / "p" / "build.toml").write_text('source = "."\nname = "p"\nversion = "1.0"\nbackend = "cmake"\n')
    text = 'project = ["p"]\ncuda = ["cpu"]\npython = ["3.11"]\nos = ["linux"]\n[projects.p]\nbuild = "p/build.toml"\n'
    (tmp_path / "matrix.toml").write_text(text)
    seen = rekindle_command(*words)
    assert (seen.code, f"[{extra}]" in seen.err) == (6, True), seen.err
    assert not (tmp_path / "certs").exists()
