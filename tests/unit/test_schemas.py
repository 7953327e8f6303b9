"""The committed JSON Schemas are those of the code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from tools import schemas

ANSWERS = schemas.answers()


@pytest.mark.parametrize("name", ANSWERS)
def test_the_committed_schema_is_current(name: str) -> None:
    committed = schemas.file_of(name).read_text(encoding="utf-8")
    assert committed == schemas.render(name, ANSWERS[name]), "run `python tools/schemas.py`"
