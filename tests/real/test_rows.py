"""The table of rows in docs/internals: complete, and each of its commands and tests is run."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import rekindle_command

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs" / "internals" / "rows.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ([SNF]\d+) \| ([^|]+) \| `([^`]+)`(?: ends with (\d+))? \| (works|UNVERIFIED) \|$",
    TABLE,
    re.MULTILINE,
)
TESTS = sorted({shown for _, _, shown, _, _ in ROWS if not shown.startswith("rekindle ")})
COMMANDS = sorted({(shown, int(ends)) for _, _, shown, ends, _ in ROWS if shown.startswith("rekindle ")})


def test_every_row_is_there_with_something_that_shows_it() -> None:
    wanted = [f"{kind}{number + 1}" for kind, many in (("S", 42), ("N", 15), ("F", 45)) for number in range(many)]
    assert [row[0] for row in ROWS] == wanted
    assert [name for name in TESTS if name.partition("::")[2] not in _functions(name.partition("::")[0])] == []


def _functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_tests_pass_and_none_is_left_out() -> None:
    """Those of tests/unit. A test with parameters counts once for each."""
    chosen = [name for name in TESTS if name.startswith("tests/unit/")]
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", *chosen]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    last = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(r"\d+ passed in .+", last), last
    assert int(last.split()[0]) >= len(chosen) > 0


@pytest.mark.parametrize(("command", "ends"), COMMANDS)
def test_the_command_answers(command: str, ends: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    seen = rekindle_command(*shlex.split(command)[1:])
    assert seen.code == ends, seen.err
    assert seen.out.strip()
