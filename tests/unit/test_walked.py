"""What a newcomer met who typed what the README and the guides say, and what one does slightly wrong."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rekindle.cli import main
from rekindle.core import console, files
from rekindle.core.command import rekindle
from rekindle.machine.model import Machine


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    ended = main.run(list(words))
    said = capsys.readouterr()
    return ended, said.out, said.err


def typed(*words: str, system: str | None = None) -> str:
    """As it is pasted there, whatever this Rekindle is called."""
    return str(rekindle(*words, system=system)).partition("rekindle ")[2]


def test_a_plan_that_installs_says_how_and_what_would_build(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.toml")
    assert told(capsys, "plan", "--gpu", "Tesla K40c", "--os", "linux", "-o", plan)[0] == 0
    ended, _, said = told(capsys, "build", plan, "--dry-run")
    assert ended == 2
    assert f"{typed('install', '--plan', plan)}`" in said
    assert "`--prefer newest`" in said
    ended, out, _ = told(capsys, "plan", "--gpu", "Tesla K40c", "--os", "linux", "--prefer", "newest", "-o", plan)
    assert ended == 0
    assert typed("build", plan, system="linux") in out


def test_everything_that_a_build_lacks_has_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekindle.machine.snapshot.here", lambda **_: Machine(os="linux", arch="x86_64"))
    plan = str(tmp_path / "plan.toml")
    other = "3.11" if sys.version_info[:2] == (3, 12) else "3.12"
    told(capsys, "plan", "--gpu", "Tesla K40c", "--os", "linux", "--prefer", "newest", "--python", other, "-o", plan)
    ended, _, said = told(capsys, "build", plan, "--dry-run")
    lacking = [line for line in said.splitlines() if " is not on this machine (found: " in line]
    assert (ended, len(lacking)) == (6, 4), said


@pytest.mark.parametrize(
    ("said", "meant"), [("Windos", "windows"), ("ubunut 22.04", "ubuntu"), ("Fedroa", "fedora"), ("linx", "linux")]
)
def test_a_misspelt_system_is_guessed_at(capsys: pytest.CaptureFixture[str], said: str, meant: str) -> None:
    ended, _, err = told(capsys, "plan", "--gpu", "RTX 3060", "--os", said)
    assert ended == 2
    assert f"did you mean `{meant}`?" in err
    assert "`Ubuntu 22.04`" in err


def test_a_driver_that_is_taken_as_itself_is_no_news(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "plan", "--gpu", "RTX 3060", "--os", "linux", "--driver", "999")[1]
    assert "newer than Rekindle's data" in out
    assert "999 is taken as 999" not in out


def test_a_wheel_that_is_not_there_is_not_one_of_a_wrong_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ended, _, err = told(capsys, "repair", str(tmp_path / "nowhere"), "-o", str(tmp_path / "out"))
    assert ended == 14
    assert "no such file" in err
    assert "rename" not in err


@pytest.mark.parametrize("verb", ["build", "review", "plan --from", "install --plan", "plan --machine"])
def test_an_empty_file_is_called_empty_by_every_verb(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str
) -> None:
    empty = tmp_path / "nothing"
    empty.write_bytes(b"")
    ended, _, err = told(capsys, *verb.split(), str(empty))
    assert (ended, f"`{empty}` is empty" in err) == (4, True)


@pytest.mark.parametrize("verb", ["build", "plan --from", "install --plan"])
def test_a_file_that_is_no_text_is_called_that(capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\xbe\x9f\x81\x00")
    ended, _, err = told(capsys, *verb.split(), str(other))
    assert ended == 4
    assert "is not a text file" in err
    assert "codec" not in err


@pytest.mark.parametrize("verb", ["review", "diagnose", "plan --machine", "repair"])
def test_a_file_that_may_not_be_read_is_no_fault_of_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    """As for somebody who is not root, which the tests may be."""
    kept = tmp_path / "kept.txt"
    kept.write_text("pip install torch\n", encoding="utf-8")

    def refusing(read: Callable[..., Any]) -> Callable[..., Any]:
        def reader(path: object, *more: object, **named: object) -> Any:
            if str(path) == str(kept):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return read(path, *more, **named)

        return reader

    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(files, "_read", refusing(files._read))
    monkeypatch.setattr(Path, "open", refusing(Path.open))
    monkeypatch.setattr(Path, "read_bytes", refusing(Path.read_bytes))
    ended, _, err = told(capsys, *verb.split(), str(kept))
    assert ended == 14
    assert err.startswith(f"error: cannot read `{kept}`")
    assert "--help" not in err


@pytest.mark.parametrize(
    ("said", "meant"), [("vlm", "did you mean `vllm`?"), ("lama.cpp", "`llama.cpp`?"), ("pytorch", "leave `--for` out")]
)
def test_a_program_that_is_not_known_is_guessed_at(capsys: pytest.CaptureFixture[str], said: str, meant: str) -> None:
    ended, _, err = told(capsys, "plan", "--for", said, "--gpu", "RTX 3060")
    assert ended == 3
    assert meant in err


@pytest.mark.parametrize(("group", "said", "meant"), [("extension", "fnd", "find"), ("knowledge", "exprot", "export")])
def test_a_misspelt_verb_of_a_group_is_answered_as_one_of_the_first_row(
    capsys: pytest.CaptureFixture[str], group: str, said: str, meant: str
) -> None:
    ended, _, err = told(capsys, group, said)
    assert ended == 2
    assert err.startswith(f"error: unknown command `{said}`\n")
    assert f"hint: did you mean `{meant}`? see `" in err


def test_a_long_heading_stays_in_the_window(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cards = [{"name": "Tesla V100-SXM2-16GB"}, {"name": "Tesla V100-SXM2-16GB"}]
    node = {"os": "linux", "arch": "x86_64", "gpus": cards, "driver": {"version": "535.129.03"}}
    file = tmp_path / "node7.json"
    file.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": node}), encoding="utf-8")
    out = told(capsys, "plan", "--machine", str(file))[1]
    assert max(map(len, out.splitlines()[:2])) <= 80


def test_a_misspelt_key_of_a_typed_machine_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    typed = {"os": "linux", "arch": "x86_64", "gpu": [{"name": "V100"}]}
    file = tmp_path / "node7.json"
    file.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": typed}), encoding="utf-8")
    ended, _, err = told(capsys, "plan", "--machine", str(file))
    assert ended == 5
    assert f"`{file}`: `machine.gpu` is not known, and not used; did you mean `gpus`?" in err


def test_what_torch_refuses_is_not_its_own_example(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "Dockerfile"
    lines = ("FROM nvidia/cuda:12.4.1-devel-ubuntu22.04", 'ENV TORCH_CUDA_ARCH_LIST="12.0"')
    script.write_text("\n".join([*lines, "RUN pip install torch==2.6.0 && pip install ."]), encoding="utf-8")
    ended, out, _ = told(capsys, "review", str(script), "--gpu", "RTX 5090")
    assert ended == 8
    plain = " ".join(out.split())
    assert "`12.0` in TORCH_CUDA_ARCH_LIST is not an architecture" in plain
    assert "Entries look like 7.5 or 8.6+PTX" in plain


def too_wide(text: str, columns: int) -> list[str]:
    """Lines of talk: what is pasted (a line of a script, a command) and a path stay whole."""
    prose = [line for line in text.splitlines() if not re.search(r"^ *[-+?] |rekindle|://|`|/.*/", line)]
    return [line for line in prose if len(line) > columns]


@pytest.mark.parametrize("columns", [80, 40])
def test_a_table_and_a_review_stay_in_the_window(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: int
) -> None:
    """Wrapped text of 25 columns below a label of 21 is as wide as the window only where no word is longer than 19."""
    monkeypatch.setenv("COLUMNS", str(columns))
    script = tmp_path / "build.bat"
    options = ("-DCMAKE_CUDA_ARCHITECTURES=35", "-DCAFFE2_USE_PTHREADPOOL=OFF", '-DTORCH_CUDA_ARCH_LIST="3.5"')
    script.write_text(" ^\n".join(["cmake .. -GNinja", *options]) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for words in (("knowledge",), ("review", "build.bat", "--gpu", "K40"), ("review", "build.bat"), ("gpu", "K40")):
        out = told(capsys, *words)[1]
        assert out.count("\n") > 9, words
        assert too_wide(out.partition("\n")[2], columns) == [], words


def test_an_error_is_wrapped_for_a_window_and_one_line_in_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sentence that is broken in the middle cannot be searched for in the log of a pipeline."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    for window in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda window=window: window)
        monkeypatch.setattr(sys, "stderr", stream)
        console.error("a sentence of more than forty columns about a wheel", "run `rekindle plan --gpu K40 --os linux`")
        said = stream.getvalue()
        assert ("forty columns" in said) is not window
        assert "`rekindle plan --gpu K40 --os linux`" in said
        assert max(map(len, console.sentence("word " * 30, stream=stream).split("\n"))) == (39 if window else 150)
        assert " ".join(said.split()).startswith("error: a sentence of more than forty columns about a wheel hint: run")


def as_windows_writes_it(path: Path, how: str) -> None:
    data = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + data if how == "Notepad" else data.decode("utf-8").encode("utf-16"))


@pytest.mark.parametrize("how", ["Notepad", "PowerShell"])
def test_files_that_windows_saved_are_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    """A mark before the text, and UTF-16, which `>` writes there: a plan, a snapshot, a matrix, a build file."""
    monkeypatch.chdir(tmp_path)
    assert told(capsys, "plan", "--gpu", "K40", "--os", "linux", "--prefer", "newest", "-o", "plan.toml")[0] == 0
    node = (
        '{"schema": "rekindle.machine/1", "machine": {"os": "linux", "arch": "x86_64", "gpus": [{"name": "V100"}]}}\n'
    )
    Path("node.json").write_text(node, encoding="utf-8")
    Path("matrix.toml").write_text('torch = "2.15.0"\ngpu = ["V100"]\npython = ["3.12"]\n', encoding="utf-8")
    for name in ("plan.toml", "node.json", "matrix.toml"):
        as_windows_writes_it(Path(name), how)
    assert "the same: torch" in told(capsys, "plan", "--from", "plan.toml")[1]
    assert "cannot be read" not in told(capsys, "build", "plan.toml", "--dry-run")[2]
    assert told(capsys, "plan", "--machine", "node.json")[0] == 0
    assert "torch-2.15.0" in told(capsys, "fleet", "plan", "matrix.toml")[1]
    own = ("--rekindle", "git+https://host.org/me/rekindle", "--accept-licence")
    assert told(capsys, "factory", "init", "factory", "--matrix", "matrix.toml", *own)[0] == 0
    assert Path("factory", "matrix.toml").read_bytes().startswith(b'torch = "2.15.0"')


def test_a_file_of_a_newer_rekindle_is_called_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`is not a plan` sends people looking for another file."""
    plan, node = tmp_path / "plan.toml", tmp_path / "node.json"
    assert told(capsys, "plan", "--gpu", "K40", "--os", "linux", "--prefer", "newest", "-o", str(plan))[0] == 0
    plan.write_text(plan.read_text(encoding="utf-8").replace("rekindle.lock/1", "rekindle.lock/2"), encoding="utf-8")
    node.write_text('{"schema": "rekindle.machine/20", "machine": {"os": "linux", "arch": "x86_64"}}', encoding="utf-8")
    for words in (("plan", "--from", plan), ("build", plan, "--dry-run"), ("plan", "--machine", node)):
        ended, _, err = told(capsys, *map(str, words))
        assert ended == 4
        assert "was written by a newer Rekindle: its schema is" in err
        assert "update this Rekindle" in err


def test_a_driver_that_a_typed_machine_leaves_out_is_not_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The guide says so; the answer was that none is running, and to install one first. `null` says that."""
    node = tmp_path / "node.json"
    typed: dict[str, Any] = {"os": "linux", "arch": "x86_64", "gpus": [{"name": "V100"}]}
    node.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": typed}), encoding="utf-8")
    ended, out, _ = told(capsys, "plan", "--machine", str(node))
    assert (ended, "driver is running" in out) == (0, False)
    assert "  driver     525.60.13 or newer" in out
    out = told(capsys, "doctor", "--machine", str(node))[1]
    assert "node.json` does not say" in " ".join(out.split())
    assert "driver is running" not in out
    node.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": typed | {"driver": None}}), encoding="utf-8")
    ended, out, _ = told(capsys, "plan", "--machine", str(node))
    assert (ended, "driver is running" in out) == (5, True)


def test_an_audit_of_a_wheel_names_what_reads_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wheel = tmp_path / "x-1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK\x03\x04" + bytes(60))
    ended, _, err = told(capsys, "audit", str(wheel))
    assert ended == 14
    assert "inspect` reads wheels" in err


@pytest.mark.parametrize("group", ["shelf", "fleet", "toolchain", "factory", "extension"])
def test_a_group_without_its_command_is_one_line(capsys: pytest.CaptureFixture[str], group: str) -> None:
    """It was `error: Usage: …` with the whole help behind it."""
    ended, _, err = told(capsys, group)
    assert ended == 2
    assert err.startswith(f"error: `rekindle {group}` needs one of its commands: ") and "Usage" not in err
