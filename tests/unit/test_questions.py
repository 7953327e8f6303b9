"""Questions from public threads, answered as a person would ask them."""

from __future__ import annotations

from typing import Any

import pytest

from support.questions import faults, questions

QUESTIONS = questions()


@pytest.mark.parametrize("question", QUESTIONS, ids=[row["id"] for row in QUESTIONS])
def test_question(question: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(question, monkeypatch) == []


def test_every_question_has_its_derivation() -> None:
    assert len({row["id"] for row in QUESTIONS}) == len(QUESTIONS)
    assert all(len(row["derivation"]) > 15 for row in QUESTIONS)
