"""For cards that the newest official wheels have left behind: what `plan` says beyond tonight's command."""

from __future__ import annotations

import re

import pytest

from support.command import rekindle_command

CARDS = [
    "GTX 750 Ti", "GTX 970", "GTX 980 Ti", "GTX TITAN X", "Tesla M40", "GTX 1050 Ti", "GTX 1060", "GTX 1080 Ti",
    "Tesla P40", "Tesla P100", "TITAN V", "Tesla V100",
]  # fmt: skip


def answer(card: str, system: str, *words: str) -> dict[str, object]:
    found: dict[str, object] = rekindle_command("plan", "--gpu", card, "--os", system, *words, "--json").json()
    return found


@pytest.mark.long
@pytest.mark.parametrize("system", ["linux", "windows"])
@pytest.mark.parametrize("card", CARDS)
def test_the_owner_knows_what_to_do_tonight_and_next_month(card: str, system: str) -> None:
    newest = answer(card, system)
    assert newest["recommended"]["route"] == "official-wheel"  # type: ignore[index]
    last, driver, later = newest["outlook"]  # type: ignore[misc]
    assert last["text"].startswith("2.14 is the last line with official wheels for this card")
    assert driver["text"].startswith("R580 is the last driver branch")
    assert later["commands"][0].endswith("--torch 2.15.0 -o plan.toml") and "factory init" in later["commands"][1]
    asked = answer(card, system, "--torch", "2.15")
    assert asked["recommended"]["route"] == "source-build"  # type: ignore[index]
    assert re.search(r"compiles (whole )?for", asked["recommended"]["unverified"][0])  # type: ignore[index]
    tonight = asked["outlook"][0]  # type: ignore[index]
    assert "torch 2.14.1+cu126" in tonight["text"] and tonight["commands"][0].endswith("--torch 2.14.1")


@pytest.mark.long
@pytest.mark.parametrize("card", ["RTX 3090", "GTX 1660", "Tesla K40c", "Tesla K80"])
def test_other_cards_are_told_nothing_of_it(card: str) -> None:
    assert answer(card, "linux")["outlook"] == []


def test_the_commands_keep_the_processor() -> None:
    words = ("plan", "--gpu", "GTX 1080 Ti", "--os", "linux", "--arch", "aarch64", "--torch", "2.15", "--json")
    first = rekindle_command(*words).json()["recommended"]["commands"][0]
    assert first.startswith("rekindle plan") and "--arch aarch64" in first


def test_hours_are_for_so_many_cores() -> None:
    shown = rekindle_command("plan", "--gpu", "GTX 1080 Ti", "--os", "linux", "--torch", "2.15").out
    assert " h on 8 cores" in shown
    assert "about 8 min\n" in rekindle_command("plan", "--gpu", "GTX 1080 Ti", "--os", "linux").out
