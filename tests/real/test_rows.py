"""The table of rows in docs/internals: complete, and each of its commands is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from support.command import rekindle_command

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs" / "internals" / "rows.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ([SNF]\d+) \| ([^|]+) \| `([^`]+)`(?: ends with (\d+))? \| (works|has tests|UNVERIFIED) \|$",
    TABLE,
    re.MULTILINE,
)
COMMANDS = sorted({(shown, int(ends)) for _, _, shown, ends, _ in ROWS if shown.startswith("rekindle ")})


def test_every_row_is_there_with_something_that_shows_it() -> None:
    wanted = [f"{kind}{number + 1}" for kind, many in (("S", 42), ("N", 15), ("F", 45)) for number in range(many)]
    assert [row[0] for row in ROWS] == wanted
    files = [shown for _, _, shown, _, _ in ROWS if not shown.startswith("rekindle ")]
    assert [name for name in files if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(("command", "ends"), COMMANDS)
def test_the_command_answers(command: str, ends: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    seen = rekindle_command(*shlex.split(command)[1:])
    assert seen.code == ends, seen.err
    assert seen.out.strip()
