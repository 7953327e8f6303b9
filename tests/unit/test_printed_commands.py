"""Every command that 300 answers print, through the shells that it may be pasted into: they hand on what was meant."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from rekindle.core.command import Command, Shell
from rekindle.knowledge.gpu import drivers
from support import powershell
from support.answers import PRINTER, Answer, Call, answers, distinct, meant, printing, shells_of, variables_of

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("here"))
        found = list(answers(300, tmp_path_factory.mktemp("read"), patch))
    assert len(found) == 300
    return found


@pytest.mark.skipif(os.name == "nt", reason="there is no sh on Windows; tests/windows has cmd")
def test_sh_hands_them_on(shown: list[Answer], tmp_path: Path) -> None:
    printer, folder = tmp_path / "print it.py", tmp_path / "some folder"
    printer.write_text(PRINTER, encoding="utf-8")
    folder.mkdir()
    commands = distinct(shown, Shell.SH)
    lines = [_typed(command, printer, str(folder)) for command in commands]
    names = {name: f"<{name}>" for command in commands for name in variables_of(command)} | {"PATH": "<PATH>"}
    typed = "".join(f"(\n{line}\n)\n" for line in lines)
    done = subprocess.run(["/bin/sh"], input=typed, capture_output=True, check=True, encoding="utf-8", env=names)
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(seen) == len(commands) > 100, done.stderr
    for command, (words, environment, where) in zip(commands, seen, strict=True):
        told = {name: environment.get(name, "") for name in command.environment}
        at = command.folder if where == str(folder) else None
        assert Call(words, told, at) == meant(command), command


def _typed(command: Command, printer: Path, folder: str) -> str:
    """Only variables: the next line sees them."""
    if command.words:
        return printing(command, printer, folder).spell(Shell.SH)
    return f"{command.spell(Shell.SH)}\n{printing(Command(), printer, folder).spell(Shell.SH)}"


def test_powershell_reads_them(shown: list[Answer]) -> None:
    commands = distinct(shown, Shell.POWERSHELL)
    assert len(commands) > 100
    for command in commands:
        calls, settings = powershell.read(command.spell(Shell.POWERSHELL))
        moved = calls.pop(0)[2] if command.folder else None
        assert Call(calls.pop() if command.words else [], settings, moved) == meant(command), command
        assert not calls


def test_they_are_spelled_for_the_shell_that_was_named(shown: list[Answer]) -> None:
    for answer in shown:
        for command in (each for each in answer.commands if not each.told):
            assert str(command) in {command.spell(shell) for shell in shells_of(command)}, answer.typed


def test_a_text_that_is_only_shown_needs_a_shell_or_a_browser(shown: list[Answer]) -> None:
    spelled = {str(each) for answer in shown for each in answer.commands if not each.told}
    texts = {str(each) for answer in shown for each in answer.commands if each.told} - spelled
    texts -= {line for row in _driver_rows() for line in (*row.install, *row.hold)}
    assert {each for each in texts if not re.search(r"^https://|[|;&*>]|\$\(|<user>", each)} == set()


def test_a_command_in_a_sentence_stays_on_its_line(shown: list[Answer]) -> None:
    """A line that is broken is two commands where it is pasted."""
    for answer in shown:
        broken = re.findall(r"`(?:rekindle|pip|python|conda|uv|git) [^`\n]*\n[^`]*`", answer.text)
        assert not broken, (answer.typed, broken)


def _driver_rows() -> list[drivers.DriverPackage]:
    """How a system gets a driver, step by step; some are for the hands."""
    return [
        row for branch in range(300, 600) for system in ("windows", "linux") for row in drivers.packages(branch, system)
    ]
