"""Questions from public threads, answered as a person would ask them."""

from __future__ import annotations

from typing import Any

import pytest

from support import pins
from support.questions import faults, questions, recommended, scenario_count

QUESTIONS = questions()
SCENARIOS = scenario_count()


@pytest.mark.long
@pytest.mark.parametrize("question", QUESTIONS, ids=[row["id"] for row in QUESTIONS])
def test_question(question: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(question, monkeypatch) == []


def test_every_question_has_its_derivation() -> None:
    assert len({row["id"] for row in QUESTIONS}) == len(QUESTIONS)
    assert all(len(row["derivation"]) > 8 for row in QUESTIONS)
    assert len(QUESTIONS) + SCENARIOS >= 250
    assert sum("thread" in row for row in QUESTIONS) >= 80


@pytest.mark.long
def test_every_pin_of_every_command_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held against the rows themselves, not against the code that chose them."""
    unknown: dict[str, list[str]] = {}
    asked = 0
    printed = whole = 0
    for question in QUESTIONS:
        with monkeypatch.context() as patch:
            route = recommended(question, patch)
        if route.get("commands"):
            printed += 1
            whole += all(how != "UNVERIFIED" for _, how in pins.states(route, route["system"], route["machine"]))
        if route.get("route") != "official-wheel":
            continue
        asked += 1
        wrong = pins.unknown(route, route["system"], route["machine"])
        if wrong:
            unknown[question["id"]] = wrong
    assert asked >= 80
    assert unknown == {}
    assert whole / printed >= 0.9
