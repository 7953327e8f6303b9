"""What reaches a terminal, a pipe or a log: nothing that drives it, no secrets, and an ending that tells the truth."""

from __future__ import annotations

import io
import json
import os
import queue
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
import urllib3

from rekindle.core import console, fetch, files, run
from rekindle.core.errors import FetchFailed, NotWritable
from rekindle.core.findings import Finding, Fix, State
from support.command import rekindle_command, rekindle_program

HOSTILE = "a\x1b[2Jb\x1b]0;owned\x07c\x9b31md\x85e\u202ef\u2066g\u200fh\x7fi\rj"
HARMLESS = "a[2Jb]0;ownedc31mdefghij"


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n")

    def getvalue(self) -> str:
        self.seek(0)
        return self.read()

    def isatty(self) -> bool:
        return True


def attached(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest takes the streams again between a fixture and its test."""
    both = Terminal()
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return both


def test_nothing_that_is_written_drives_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attached(monkeypatch)
    console.out(HOSTILE)
    console.say(HOSTILE)
    console.error(HOSTILE, HOSTILE)
    console.out(console.finding(Finding(id="x", state=State.FAIL, found=HOSTILE, why=HOSTILE, fix=Fix(text=HOSTILE))))
    console.out(console.table([(HOSTILE, HOSTILE)]))
    shown = terminal.getvalue()
    assert HARMLESS in shown
    plain = shown.replace("\x1b[31m", "").replace("\x1b[36m", "").replace("\x1b[0m", "")
    assert not set(plain) & set("\x1b\x07\x9b\x85\u202e\u2066\u200f\x7f\r")


def test_our_own_colours_are_written_and_cannot_be_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attached(monkeypatch)
    console.out(console.paint("good", "green") + " \x1b[31mbad\x1b[0m \x0e0123456789abcdef:31;worse")
    assert terminal.getvalue() == "\x1b[32mgood\x1b[0m [31mbad[0m 0123456789abcdef:31;worse\n"


def test_json_keeps_the_data_and_escapes_what_a_terminal_obeys(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attached(monkeypatch)
    console.out_json({"schema": "x", "name": HOSTILE, "umlaut": "ü"})
    assert json.loads(terminal.getvalue())["name"] == HOSTILE
    assert "ü" in terminal.getvalue()
    assert not set(terminal.getvalue()) & set("\x1b\x07\x9b\x85\u202e\u2066\u200f\x7f\r")


SECRETS = [
    ("git clone https://jane:hunter2@host.example/x.git", "hunter2"),
    ("https://ghp_0123456789abcdefghijABCDEFGHIJ@github.com/x", "ghp_"),
    ("CMAKE_ARGS=-DSCCACHE_SECRET_KEY=qwertz123", "qwertz123"),
    ("USE_MIRROR=https://bot:s3cret@mirror.example", "s3cret"),
    ("MY_TOKEN='abcdef12'", "abcdef12"),
    ("curl -H 'Authorization: Bearer abcdefgh12345678'", "abcdefgh12345678"),
    ("upload --password correct-horse", "correct-horse"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_is_in_no_output(text: str, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attached(monkeypatch)
    console.out(text)
    console.say(text)
    console.error(text, text)
    console.out_json({"schema": "x", "environment": {"CMAKE_ARGS": text, "HF_TOKEN": secret}, "lines": [text]})
    assert secret not in terminal.getvalue()
    assert "<secret>" in terminal.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "pip install tokenizers==0.15.0 sentencepiece",
        "foo.cpp:3: error: expected unqualified-id before token: foobar",
        "author: Jane",
        "ssh://git@github.com/pytorch/pytorch",
        "http://localhost:8080/a@b",
        "secrets.token_hex(4)",
        "-DUSE_CUDA=ON -DCMAKE_BUILD_TYPE=Release",
    ],
)
def test_what_is_no_secret_stays(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attached(monkeypatch)
    console.out(text)
    assert terminal.getvalue() == text + "\n"


def test_doctor_and_env_print_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMAKE_ARGS", "-DAPI_TOKEN=verysecret1")
    monkeypatch.setenv("USE_MIRROR", "https://bot:verysecret2@mirror.example")
    monkeypatch.setenv("TORCH_API_KEY", "verysecret3")
    for words in (
        ["doctor", "--json"],
        ["doctor"],
        ["env", "--json", "--torch", "1.13.1"],
        ["env", "--torch", "1.13.1"],
    ):
        seen = rekindle_command(*words)
        assert "verysecret" not in seen.out + seen.err, words


def test_the_fix_of_a_diagnosis_hides_the_name_that_its_evidence_hides(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(
        "CMake Error: The current CMakeCache.txt directory /home/jane/pytorch/build/CMakeCache.txt is different than "
        "the directory /home/jane/old/build where CMakeCache.txt was created.\n",
        encoding="utf-8",
    )
    for words in ((), ("--json",), ("--markdown",)):
        seen = rekindle_command("diagnose", str(log), *words)
        assert "jane" not in seen.out
        assert "&lt;user>" in seen.out or "<user>" in seen.out or "pytorch" not in seen.out


def test_a_command_in_a_sentence_is_not_broken() -> None:
    """A line end inside a command is its end where it is pasted."""
    told = console.wrap("PyTorch without a GPU is `pip install torch --index-url https://x/whl/cpu` there", columns=40)
    assert told == "PyTorch without a GPU is\n`pip install torch --index-url https://x/whl/cpu`\nthere"


@pytest.mark.parametrize("columns", ["²", "-3", "", "99999999999", "x"])
def test_a_strange_width(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert 60 <= console.width() <= 120
    assert rekindle_command("gpu", "Tesla K40c").code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["gpu", "no such card", "--json"], 3),
        (["inspect", "nothing.whl", "--json"], 14),
        (["gpu", "--nope", "--json"], 2),
    ],
)
def test_with_json_an_error_is_an_object(words: list[str], code: int) -> None:
    seen = rekindle_command(*words)
    assert seen.code == code
    answer = seen.json()
    assert (answer["schema"], answer["code"]) == ("rekindle.error/1", code)
    assert answer["message"] in seen.err
    assert answer["hint"]


def test_without_json_an_error_is_talk_only() -> None:
    assert rekindle_command("gpu", "no such card").out == ""


def test_an_internal_error_is_an_object_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from rekindle.cli import gpu

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by \x1b[2J zero")

    monkeypatch.setattr(gpu.command, "callback", fails)
    seen = rekindle_command("gpu", "K40c", "--json")
    assert seen.code == 1
    assert "internal error; please report it" in seen.json()["message"]
    assert "\x1b" not in seen.err


def ended(words: list[str], **streams: object) -> subprocess.CompletedProcess[bytes]:
    command, environ = rekindle_program(*words)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.run(command, env=environ, check=False, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only on Linux")
def test_a_full_disk_under_stdout() -> None:
    with Path("/dev/full").open("wb") as full:
        for words in (["gpu", "K40c"], ["gpu", "K40c", "--json"]):
            done = ended(words, stdout=full)
            assert done.returncode == NotWritable.exit_code
            assert b"the disk is full" in done.stderr
            assert b"Traceback" not in done.stderr
        assert ended(["gpu", "K40c"], stderr=full).returncode == 0
        assert ended(["gpu", "nothing"], stderr=full).returncode == 3


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such thing")
def test_closed_streams() -> None:
    done = ended(["gpu", "no such card"], preexec_fn=lambda: os.close(2), stderr=None)
    assert done.returncode == 3
    done = ended(["gpu", "K40c"], preexec_fn=lambda: os.close(1), stdout=None)
    assert done.returncode == NotWritable.exit_code
    assert b"stdout is closed" in done.stderr
    done = ended(["gpu", "K40c"], preexec_fn=lambda: (os.close(1), os.close(2)), stdout=None, stderr=None)
    assert done.returncode == NotWritable.exit_code


@pytest.mark.parametrize(
    ("number", "said"), [("ENOSPC", "the disk is full"), ("EROFS", "read-only"), ("EACCES", "permission denied")]
)
def test_what_the_disk_refuses_is_said_in_plain_words(
    number: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def refuses(*_: object, **__: object) -> None:
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)), "the/file")

    monkeypatch.setattr(os, "fsync", refuses)
    with pytest.raises(NotWritable, match=said):
        files.write_text(tmp_path / "x", "text")
    from rekindle.cli import gpu

    monkeypatch.setattr(gpu.command, "callback", refuses)
    seen = rekindle_command("gpu", "K40c")
    assert seen.code == NotWritable.exit_code
    assert said in seen.err


def test_a_long_wait_says_what_it_waits_for_and_a_short_one_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = queue.Queue[str]()
    monkeypatch.setattr(console, "say", said.put)
    monkeypatch.setattr(console, "_begun", True)
    with console.waiting("reading a wheel"):
        pass
    monkeypatch.setattr(console, "_PATIENCE", 0.0)
    with console.waiting("reading another"):
        assert said.get(timeout=60) == "reading another"
    assert said.empty()


def test_a_program_and_a_server_that_keep_us_waiting_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = queue.Queue[str]()
    go = tmp_path / "go"

    class Silent(urllib3.PoolManager):
        def request(self, *_: object, **__: object) -> NoReturn:
            assert said.get(timeout=60) == "waiting for http://a.test/list"
            raise OSError("enough")

    def say(text: str) -> None:
        said.put(text)
        go.touch()

    monkeypatch.setattr(console, "say", say)
    monkeypatch.setattr(console, "_begun", True)
    monkeypatch.setattr(fetch, "pool_for", lambda _: Silent())
    monkeypatch.setattr(console, "_PATIENCE", 0.0)
    program = "import pathlib, sys\nwhile not pathlib.Path(sys.argv[1]).exists(): pass"
    assert run.call([sys.executable, "-c", program, go], timeout=600).ok
    assert said.get(timeout=60).startswith("waiting for `")
    with pytest.raises(FetchFailed, match="enough"):
        fetch.fetch_small("http://a.test/list", most=9)
