"""Commands for cmd, through the real one: the program gets the words that were meant."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rekindle.core.command import Command, Shell, ShellVariable
from support.answers import PRINTER, Call, answers, distinct, meant, printing, variables_of

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="cmd is on Windows")

WORDS = [
    ["plain", "numpy<2", "a b", "torch==2.7.1+cu118"],
    ["100%", "%PATH%", "a%b%c"],
    ["!x!", "a & b", "a|b", "(x86)", "^", "a^b", "<in >out"],
    ['say "hi"', '"', 'a" & echo b', "trailing\\", "C:\\Program Files\\x\\"],
    ["", "-x", "--", "$HOME", "`id`", "$(id)", "'single'"],
    ["J\u00f6rg", "\u6f22"],
]


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_cmd_hands_on_the_words(tmp_path: Path, words: list[str]) -> None:
    assert _through_cmd(tmp_path, Command(sys.executable, str(_printer(tmp_path)), *words, shell=Shell.CMD)) == words


def test_cmd_sets_what_the_program_sees(tmp_path: Path) -> None:
    call = Command(
        sys.executable, str(_printer(tmp_path)), (ShellVariable("RK_SEEN"), "\\x"), environment={"RK_SEEN": "a & (b)"}
    )
    # cmd fills `%NAME%` in when it reads the line, before `set` has run: a variable of before is what is meant.
    assert _through_cmd(tmp_path, call, RK_SEEN="before") == ["before\\x"]


def test_cmd_hands_on_what_300_answers_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real cmd for each command that it may be given, with a program that prints what it gets."""
    printer, folder, read = tmp_path / "print it.py", tmp_path / "some folder", tmp_path / "read"
    printer.write_text(PRINTER, encoding="utf-8")
    folder.mkdir()
    read.mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        shown = list(answers(300, read, patch))
    commands = distinct(shown, Shell.CMD)
    assert len(shown) == 300 and len(commands) > 100
    for command in commands:
        line = printing(command, printer, str(folder)).spell(Shell.CMD)
        if not command.words:
            # A blank before the `&` would belong to the value.
            line = f"{command.spell(Shell.CMD)}&{printing(Command(), printer, str(folder)).spell(Shell.CMD)}"
        # Windows itself sets some of them for every program.
        known = {name: os.environ.get(name, f"<{name}>") for name in variables_of(command)}
        words, environment, where = _carried_out(tmp_path, line, **known)
        told = {name: environment.get(name.upper(), "") for name in command.environment}
        wanted = meant(command, known)
        assert Call(words, told, command.folder if where == str(folder) else None) == wanted, command


def _printer(folder: Path) -> Path:
    program = folder / "print words.py"
    program.write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\n", encoding="utf-8")
    return program


def _through_cmd(folder: Path, call: Command, **environment: str) -> list[str]:
    return _carried_out(folder, call.spell(Shell.CMD), **environment)


def _carried_out(folder: Path, typed: str, **environment: str) -> list[Any]:
    line = f'cmd.exe /d /v:off /s /c "{typed}"'
    seen = {**os.environ, **{name.upper(): value for name, value in environment.items()}}
    done = subprocess.run(line, capture_output=True, check=True, cwd=folder, timeout=60, env=seen)
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found
