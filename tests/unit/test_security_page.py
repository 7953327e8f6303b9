"""SECURITY.md lists every kind of file that somebody may hand you, and who tries it: one that is missing fails here."""

from __future__ import annotations

import re
from pathlib import Path

from tools.hostile.readers import READERS

ROOT = Path(__file__).resolve().parents[2]
TITLE = "## Every kind of file"
# Files that Rekindle reads back carry their kind; an answer that is only printed has none of these constants.
SCHEMA = re.compile(r'^[A-Z_]*SCHEMA = "(rekindle\.[\w-]+)/', re.MULTILINE)


def rows() -> list[list[str]]:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = text[text.index(TITLE) :].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_every_kind_says_who_and_what_and_is_tried() -> None:
    for row in rows():
        assert len(row) == 4 and all(row), row
        for name in row[3].split(", "):
            assert name in READERS or any((ROOT / "tests" / room / name).is_file() for room in ("unit", "real")), name


def test_everything_that_the_generator_makes_is_in_the_table() -> None:
    assert {name for row in rows() for name in row[3].split(", ")} >= set(READERS)


def test_every_file_with_a_kind_of_its_own_is_in_the_table() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "src" / "rekindle").rglob("*.py"))
    known = {name for text in sources for name in SCHEMA.findall(text)}
    assert len(known) >= 10
    assert known == set(re.findall(r"`(rekindle\.[\w-]+)`", " ".join(row[0] for row in rows())))
