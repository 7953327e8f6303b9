"""The site: every answer on it is one that the resolver gave."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from rekindle.core import codec
from rekindle.web import answers, site
from rekindle.web.answers import CARD, DRIVER


@pytest.fixture(scope="module")
def classes() -> tuple[answers.CardClass, ...]:
    return answers.classes()


def test_every_card_is_in_exactly_one_class(classes: tuple[answers.CardClass, ...]) -> None:
    every = [name for each in classes for name in each.names]
    assert len(every) == len(set(every)) > 800
    assert len(classes) < 60


@pytest.mark.parametrize("name", ["Tesla K80", "Quadro RTX 4000"])
def test_what_is_looked_up_is_what_the_resolver_says(
    classes: tuple[answers.CardClass, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "pythons", lambda: ("", "3.11"))
    cards = next(each for each in classes if name in each.names)
    kept = answers.answers_of(cards, "linux")
    draw = random.Random(20261115)
    for _ in range(8):
        driver = draw.choice(["", f"{draw.randint(418, 610)}.{draw.randint(10, 99)}"])
        python = draw.choice(["", "3.11"])
        found = answers.looked_up(kept, python, driver)
        text = codec.to_json(found, indent=0).replace(CARD, name).replace(DRIVER, driver)
        expected = answers.shown(answers.verdict(name, "linux", python or None, driver or None))
        assert json.loads(text) == json.loads(codec.to_json(expected, indent=0)), (python, driver)


def test_the_pages_of_one_kind_of_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "pythons", lambda: ("", "3.11"))
    monkeypatch.setattr(answers, "driver_steps", lambda _: ("", "0", "470", "550"))
    monkeypatch.setattr(site, "_grid", lambda _: [("3.7", "Kepler", [])])
    made = site.write_site(tmp_path, only=["Tesla K80"])
    assert made.cards == 1
    page = (tmp_path / "gpu/tesla-k80.html").read_text(encoding="utf-8")
    assert "PyTorch for Tesla K80" in page and CARD not in page
    index = (tmp_path / "data/cards.js").read_text(encoding="utf-8")
    data = json.loads(index.removeprefix("REKINDLE.cards(").removesuffix(");\n"))
    assert data["names"][data["keys"]["k80"]] == "Tesla K80"
    for html in tmp_path.rglob("*.html"):
        text = html.read_text(encoding="utf-8")
        assert "Content-Security-Policy" in text and "unsafe" not in text
        assert not re.search(r"<script(?! src=)|\son\w+=", text), html


def test_a_spelling_means_what_the_command_line_takes_it_for() -> None:
    found = {each.key: each.card for each in site.spellings(["GeForce GTX 1080 Ti", "Tesla K40c"])}
    assert found["1080ti"] == found["gtx1080ti"] == "GeForce GTX 1080 Ti"
    assert found["k40c"] == "Tesla K40c"
