"""`build.ps1` against `build.cmd`: no PowerShell runs here, so both are read, and what they would do is compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tree_sitter
import tree_sitter_powershell

from rekindle.build.script.text import PYTHON_BEGINS
from support.command import rekindle_command

MACHINE = Path(__file__).parent.parent / "machines" / "k40c-windows.json"
K40C = 'torch = "1.12.1"\ncuda = "11.4"\narch_list = "3.5"\npython = "3.9"\ntoolset = "14.29"\n'
PLAIN = 'source = "my src"\nname = "app"\nversion = "1.0"\nbackend = "cmake"\n'
ODD = "C:\\it's ${x} $(y) `z 100%"
Action = tuple[object, ...]
_BETWEEN = ("(", ")", "@(", ",", "+", "\n", "command_argument_sep")


def script(folder: Path, name: str, plan: str, *words: str) -> str:
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    asked = ("build", str(folder / "plan.toml"), "--machine", str(MACHINE), "--script", str(folder / name), *words)
    seen = rekindle_command(*asked)
    assert seen.code == 0, seen.err
    return (folder / name).read_bytes().decode("ascii").replace("\r\n", "\n")


@pytest.mark.parametrize(("plan", "words"), [(K40C, ("--work", "D:\\b")), (PLAIN, ("--work", ODD, "-D", "A=x y"))])
def test_it_does_step_by_step_what_the_batch_file_does(tmp_path: Path, plan: str, words: tuple[str, ...]) -> None:
    batch = script(tmp_path, "build.cmd", plan, *words)
    shell = script(tmp_path, "build.ps1", plan, *words)
    part = shell.partition("$PythonPart = @'\n")[2].partition("'@\n")[0]
    assert batch.partition(f"rem {PYTHON_BEGINS}\n")[2] == part.replace(r".\\build.ps1", "build.cmd")
    wanted, found = dict(_batch(batch)), dict(_shell(shell))
    assert list(found) == list(wanted)
    assert {"places", "preflight", "environment", "compile", "package", "the end"} <= set(wanted)
    for step, actions in wanted.items():
        assert actions and found[step] == actions, step


def test_both_end_with_the_same_codes(tmp_path: Path) -> None:
    batch, shell = script(tmp_path, "build.cmd", K40C), script(tmp_path, "build.ps1", K40C)
    own = shell.partition("@'\n")[0] + shell.rpartition("'@\n")[2]
    assert set(re.findall(r"\bexit (\d)", own)) == set(re.findall(r"\bexit /b (\d)", batch)) == set("01234")
    assert "Cannot write to the folder of RK_WORK" in own and "Cannot write to the folder of RK_WORK" in batch


@pytest.mark.parametrize("value", ['a"b', "a b\\", "a\nb"])
def test_a_word_that_windows_powershell_would_change_is_refused(tmp_path: Path, value: str) -> None:
    """Version 5.1 hands quotes on as they are, and a quote behind a backslash is no end."""
    (tmp_path / "plan.toml").write_text(PLAIN, encoding="utf-8")
    asked = ("build", str(tmp_path / "plan.toml"), "--machine", str(MACHINE), "--script", str(tmp_path / "b.ps1"))
    seen = rekindle_command(*asked, "-D", f"A={value}")
    assert seen.code == 4 and "cannot be written into a script for PowerShell" in seen.err
    assert not (tmp_path / "b.ps1").exists()


def test_a_fault_in_the_syntax_would_be_seen(tmp_path: Path) -> None:
    text = script(tmp_path, "build.ps1", K40C)
    assert _parsed(text.replace("if (Test-Step 'check') {", "if (Test-Step 'check' {")).has_error


# ---- the batch file, line by line


def _batch(text: str) -> Iterator[tuple[str, list[Action]]]:
    shell = text.partition(f"rem {PYTHON_BEGINS}\n")[0]
    top, rest = shell.split("rem What you may change\n")[1].split("\n\n", 1)
    yield "places", list(_batch_actions(top))
    for part in rest.partition("\n:steps\n")[2].split("rem " + "-" * 70 + "\n")[1:]:
        begins = re.search(r" begin (\w+)$", part, re.MULTILINE)
        lines = part.partition(":failed\n")[0] if not begins else part[begins.end() :]
        yield begins[1] if begins else "the end", list(_batch_actions(lines))


def _batch_actions(text: str) -> Iterator[Action]:
    for line in text.splitlines():
        if line.startswith(("rem ", "if %", "if not %", ":", "exit")) or not line or line == 'set "PATH=%PATH:"=%"':
            continue
        if line.startswith("call "):
            yield "vcvars", line.partition('%%" ')[2]
        elif line.startswith("if not exist "):
            yield "make", _batch_words(line)[-1]
        elif line.startswith("cd /d "):
            yield "go", _batch_words(line)[2]
        elif dropped := re.fullmatch(r'set "(\w+)=%\1:(.+);=%"', line):
            yield "drop", dropped[1], dropped[2]
        elif setting := re.fullmatch(r'set "(\w+)=(.*)"', line):
            if setting[1] != "RK_VCVARS" and setting[2] != f"%{setting[1]}%;":
                yield "set", setting[1], _batch_value(setting[2])
        else:
            python, steps, *words = _batch_words(line)
            assert steps == "<RK_STEPS>", line
            yield "call", python, words


def _batch_words(line: str) -> list[str]:
    found = re.findall(r'"([^"]*)"|(\S+)', line)
    # Before a quote each backslash is written twice.
    return [_batch_value(re.sub(r"(\\+)$", lambda end: end[1][::2], quoted) or plain) for quoted, plain in found]


def _batch_value(text: str) -> str:
    return re.sub(r"%(?:%|(\w+)%)", lambda name: f"<{name[1]}>" if name[1] else "%", text)


# ---- the script for PowerShell, by its grammar


def _parsed(text: str) -> tree_sitter.Node:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language())).parse(text.encode()).root_node


def _shell(text: str) -> Iterator[tuple[str, list[Action]]]:
    root = _parsed(text)
    assert not root.has_error
    (lines,) = [child for child in root.children if child.type == "statement_list"]
    statements = list(lines.children)
    before = [node for node in statements if _text(node).startswith("$Env:RK_")]
    places = [node for node in before if not re.match(r"\$Env:RK_(FROM|UNTIL|PATH|STEPS) ", _text(node))]
    yield "places", [action for node in places for action in _shell_actions(node)]
    for node in statements:
        if node.type == "if_statement" and _text(node).startswith("if (Test-Step "):
            (body,) = [child for child in node.children if child.type == "statement_block"]
            inside = [each for child in body.children if child.type == "statement_list" for each in child.children]
            yield _text(node).split("'")[1], [action for each in inside for action in _shell_actions(each)]
    yield "the end", list(_shell_actions(statements[-1]))


def _shell_actions(node: tree_sitter.Node) -> Iterator[Action]:
    if node.type in ("comment", "\n"):
        return
    settings = [each for each in _below(node) if each.type == "assignment_expression"]
    commands = [each for each in _below(node) if each.type == "command"]
    if settings:
        name = _text(settings[0]).split(" ")[0].removeprefix("$Env:")
        if commands and _text(commands[0]).startswith("Where-Object"):
            (entries,) = [each for each in _below(commands[0]) if each.type == "array_expression"]
            for entry in _value(entries):
                yield "drop", name, entry
            return
        beside = _text(settings[0]).split(" = ")[1].startswith("(Join-Path $PSScriptRoot ")
        value = _words(commands[0])[-1] if beside else _value(settings[0].children[-1])
        yield "set", name, f"<RK_HERE>{value}" if beside else value
        return
    first, *words = _words(commands[0])
    if first == "Remove-Item":
        yield "set", str(words[1]).removeprefix("Env:"), ""
    elif first == "New-Item":
        yield "make", words[words.index("-Path") + 1]
    elif first == "Set-Location":
        yield "go", words[1]
    elif first == "Import-Vcvars":
        yield "vcvars", words[0]
    else:
        assert first == "Invoke-Part", _text(node)
        yield "call", words[0], words[1]


def _words(command: tree_sitter.Node) -> list[object]:
    rest = [child for child in command.children if child.type == "command_elements"]
    parts = [child for each in rest for child in each.children if child.type not in _BETWEEN]
    return [_text(command.children[0]), *(_value(part) for part in parts)]


def _value(node: tree_sitter.Node) -> object:
    """What an expression is: a variable is `<NAME>`, an array a list."""
    text, inside = _text(node), [child for child in node.children if child.type not in _BETWEEN]
    if node.type == "array_expression":
        (only,) = inside
        while len(only.children) == 1 and only.type != "array_literal_expression":
            only = only.children[0]
        return [_value(child) for child in only.children if child.type not in _BETWEEN]
    if not inside or node.type == "string_literal":
        if text.startswith("'"):
            return text[1:-1].replace("''", "'")
        if text.startswith('"'):
            return re.sub(r"`(.)", r"\1", re.sub(r"\$\{env:(\w+)\}", r"<\1>", text[1:-1]))
        return f"<{text[5:]}>" if text.startswith("$Env:") else text
    return _value(inside[0]) if len(inside) == 1 else "".join(str(_value(child)) for child in inside)


def _below(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    yield node
    for child in node.children:
        yield from _below(child)


def _text(node: tree_sitter.Node) -> str:
    assert node.text is not None
    return node.text.decode("utf-8")
