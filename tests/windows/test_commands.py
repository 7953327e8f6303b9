"""Commands for cmd, through the real one: the program gets the words that were meant."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle.core.command import Command, Shell, ShellVariable

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


def _printer(folder: Path) -> Path:
    program = folder / "print words.py"
    program.write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\n", encoding="utf-8")
    return program


def _through_cmd(folder: Path, call: Command, **environment: str) -> list[str]:
    import os

    line = f'cmd.exe /d /v:off /s /c "{call.spell(Shell.CMD)}"'
    seen = {**os.environ, **environment}
    done = subprocess.run(line, capture_output=True, check=True, cwd=folder, timeout=60, env=seen)
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found
