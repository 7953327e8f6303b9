"""Files of every kind, written by hand with one fault each or none: `#### name | file | options | ok, bad or open`."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from support.command import rekindle_command

DATA = Path(__file__).parents[1] / "data" / "review" / "written.txt"
CODES = {"ok": 0, "bad": 8, "open": 9}


def cases() -> list[tuple[str, str, str, str, dict[str, str]]]:
    found = []
    for block in DATA.read_text(encoding="utf-8").split("#### ")[1:]:
        head, _, text = block.partition("\n")
        name, file, options, want, *_ = (part.strip() for part in head.split("|"))
        first, *others = text.split("##+ ")
        files = {file: first, **{each.partition("\n")[0].strip(): each.partition("\n")[2] for each in others}}
        found.append((name, file, options, want, files))
    return found


@pytest.mark.parametrize(("name", "file", "options", "want", "files"), cases(), ids=lambda part: str(part)[:12])
def test_written(tmp_path: Path, name: str, file: str, options: str, want: str, files: dict[str, str]) -> None:
    for spelled, text in files.items():
        (tmp_path / spelled).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / spelled).write_text(text, encoding="utf-8", newline="\n")
    seen = rekindle_command("review", str(tmp_path / file), *shlex.split(options))
    assert seen.code == CODES[want], (name, seen.out)
