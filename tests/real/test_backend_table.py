"""The table of `docs/concepts/build-backends.md`, row by row against a real tree of the scikit-build-core era."""

from __future__ import annotations

import os
import re
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from rekindle.core.paths import cache_folder
from support.artefacts import unverified

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "build-backends.md"
_CODE = re.compile(r"`(.+)`\Z")


def rows() -> list[tuple[str, str, str]]:
    """What, file, words of each row of the first table."""
    found = []
    lines = iter(PAGE.read_text(encoding="utf-8").splitlines())
    table = takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("| "), lines))
    for line in list(table)[2:]:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        file, words = _CODE.match(cells[3]), _CODE.match(cells[4])
        assert len(cells) == 6 and file and words, line
        found.append((cells[0], file[1], words[1]))
    return found


def tree() -> Path:
    named = os.environ.get("REKINDLE_TORCH_TREE")
    places = [Path(named)] if named else sorted((cache_folder() / "source").glob("pytorch-2.1[4-9]*"))
    if not places or not (places[-1] / "version.txt").is_file():
        unverified("no source tree of PyTorch 2.14 or newer (name one with REKINDLE_TORCH_TREE)")
    return places[-1]


def test_the_table_has_its_rows() -> None:
    assert len(rows()) >= 20 and len({what for what, _, _ in rows()}) == len(rows())


@pytest.mark.parametrize(("what", "file", "words"), rows())
def test_the_tree_says_what_the_row_says(what: str, file: str, words: str) -> None:
    text = " ".join((tree() / file).read_text(encoding="utf-8").split())
    assert words in text, f"{what}: {file} no longer says `{words}`"
