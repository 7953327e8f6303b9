"""The picker in a real browser: typed as people type, held against the resolver."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rekindle.core.errors import RekindleError
from rekindle.web import answers, site
from support.artefacts import unverified

CARDS = ("Tesla K80", "GeForce GTX 1080 Ti", "GeForce RTX 5070")
SEED = 20261115
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    site.write_site(made, only=CARDS)
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        unverified("no Chromium is installed (Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unverified("playwright is not installed")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=list(FLAGS))
        opened = browser.new_page(viewport={"width": 360, "height": 800})
        faults: list[str] = []
        opened.on("pageerror", lambda error: faults.append(str(error)))
        opened.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        opened.goto((folder / "index.html").as_uri())
        yield opened
        browser.close()
        assert faults == []


def ask(page: Any, gpu: str, system: str, python: str, driver: str) -> dict[str, Any]:
    page.fill("#gpu", "")
    page.select_option("#os", system)
    page.select_option("#python", python)
    page.fill("#driver", driver)
    page.fill("#gpu", gpu)
    page.wait_for_function(
        "() => !document.getElementById('answer').hidden || document.getElementById('message').textContent"
    )
    return {
        "headline": page.text_content("#headline"),
        "summary": page.text_content("#summary"),
        "commands": page.eval_on_selector_all("#commands code", "found => found.map(each => each.textContent)"),
        "message": page.text_content("#message"),
    }


def spelled(name: str, draw: random.Random) -> str:
    short = name.replace("GeForce ", "").replace("Tesla ", "")
    return draw.choice(
        [name, name.lower(), short, short.replace(" ", ""), short.lower().replace(" ", "-"), f"NVIDIA {name}"]
    )


def test_a_hundred_questions_get_the_answers_of_the_command_line(page: Any, folder: Path) -> None:
    draw = random.Random(SEED)
    text = (folder / "data/cards.js").read_text(encoding="utf-8")
    names = json.loads(text.removeprefix("REKINDLE.cards(").removesuffix(");\n"))["names"]
    different = []
    for _ in range(100):
        gpu = spelled(draw.choice(names), draw)
        system, python = draw.choice(["windows", "linux"]), draw.choice(answers.pythons())
        driver = draw.choice(["", f"{draw.randint(390, 610)}.{draw.randint(10, 99)}"])
        try:
            expected = answers.verdict(gpu, system, python or None, driver or None)
        except RekindleError:
            continue
        seen = ask(page, gpu, system, python, driver)
        best = expected.recommended
        wanted = (f"{best.route.value}: {best.summary}", list(best.commands))
        if (seen["summary"], seen["commands"]) != wanted:
            different.append((gpu, system, python, driver, seen, wanted))
    assert not different, "\n".join(map(str, different))


def test_the_page_fits_a_telephone_and_a_link_brings_the_answer_back(page: Any, folder: Path) -> None:
    ask(page, "1080 ti", "windows", "", "")
    assert page.evaluate("document.documentElement.scrollWidth <= 360")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("#answer:not([hidden])")
    assert page.text_content("#headline") == "GeForce GTX 1080 Ti on Windows"


def test_what_is_no_card_of_nvidias_is_said(page: Any) -> None:
    assert "AMD" in ask(page, "Radeon RX 7900", "linux", "", "")["message"]
    assert "No card called" in ask(page, "<img src=x onerror=alert(1)>", "linux", "", "")["message"]
    assert "is not a driver version" in ask(page, "Tesla K80", "linux", "", "new")["message"]


def test_an_answer_to_a_change_comes_at_once(page: Any) -> None:
    """Median of 50 changes, as the browser's own clock has it."""
    ask(page, "Tesla K80", "linux", "", "")
    took = page.evaluate(
        """() => { const found = []; const field = document.getElementById('driver');
        for (let i = 0; i < 50; i += 1) { field.value = String(450 + i) + '.10'; const begun = performance.now();
        field.dispatchEvent(new Event('input')); found.push(performance.now() - begun); }
        return found.sort((a, b) => a - b)[25]; }"""
    )
    assert took < 50
