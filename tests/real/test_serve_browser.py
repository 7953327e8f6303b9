"""`rekindle serve` in a real Chromium: a recorded computer filled in, other cards asked for, axe content."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rekindle
from rekindle import api
from rekindle.web import answers
from support import browser as browsers

MACHINE = Path(__file__).parents[1] / "machines" / "k40c-windows.json"


class Served(NamedTuple):
    address: str
    process: int


@contextlib.contextmanager
def serve(shelf: Path, *words: str) -> Iterator[Served]:
    env = {**os.environ, "PYTHONPATH": str(Path(rekindle.__file__).parents[1]), "REKINDLE_SHELF": str(shelf)}
    command = [sys.executable, "-m", "rekindle", "serve", "--port", "0", *words]
    run = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    assert run.stdout is not None
    place = run.stdout.readline().decode().strip()
    port = int(place.rstrip("/").rpartition(":")[2])
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.1)
    yield Served(place, run.pid)
    run.terminate()
    run.wait(timeout=30)
    run.stdout.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("shelf"), "--machine", str(MACHINE)) as found:
        yield found


@pytest.fixture
def address(served: Served) -> str:
    return served.address


def test_the_audit_of_this_computer_is_shown(browser: Any, tmp_path: Path) -> None:
    """Of the environment that the server runs in, as `rekindle audit` has it."""
    said = api.audit()
    with serve(tmp_path / "shelf") as here:
        page = browser.new_page(viewport={"width": 360, "height": 800})
        faults = browsers.watched(page)
        page.goto(f"{here.address}audit.html", timeout=300_000)
        text = page.inner_text("main")
        assert said.state.value in page.inner_text("h1") and f"checked {said.examined} modules" in text
        assert page.locator("main tbody tr").count() == sum(1 for _ in findings(said))
        assert page.evaluate("document.documentElement.scrollWidth <= 360")
        assert browsers.violations(page) == []
        page.close()
    assert faults == []


def findings(said: Any) -> Iterator[Any]:
    yield from said.findings
    for module in said.modules:
        yield from module.findings


def test_the_matrix_is_there_at_once(browser: Any, served: Served) -> None:
    """The first time, when nothing is kept yet."""
    page = browser.new_page()
    faults = browsers.watched(page)
    page.goto(f"{served.address}matrix.html", timeout=300_000)
    assert page.locator("td").count() > 500
    page.close()
    assert faults == []


@pytest.mark.parametrize("path", ["", "index.html", "doctor.html", "shelf.html", "gpu/tesla-k80.html"])
def test_pages_hold_and_can_be_read(browser: Any, address: str, path: str) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 800})
    faults = browsers.watched(page)
    page.goto(address + path, timeout=120_000)
    if path == "index.html":
        browsers.until(page, "!document.getElementById('answer').hidden")
    assert page.evaluate("document.documentElement.scrollWidth <= 360")
    assert browsers.violations(page) == []
    page.close()
    assert faults == []


def test_the_picker_begins_with_this_computer_and_answers_for_others(browser: Any, address: str) -> None:
    page = browser.new_page()
    faults = browsers.watched(page)
    page.goto(address + "index.html", timeout=120_000)
    browsers.until(page, "document.getElementById('headline').textContent === 'Tesla K40c on Windows'")
    assert page.input_value("#driver") == "472.50"
    page.fill("#driver", "")
    page.select_option("#os", "linux")
    page.select_option("#python", "3.11")
    page.fill("#gpu", "1080ti")
    browsers.until(page, "document.getElementById('headline').textContent === 'GeForce GTX 1080 Ti on Linux'")
    best = answers.verdict("1080ti", "linux", "3.11", None).recommended
    browsers.until(page, f"document.querySelector('.summary').textContent.includes({best.torch!r})")
    assert page.text_content("#best .panel code") == "\n".join(best.commands)
    page.fill("#gpu", "rx 580")
    browsers.until(page, "document.getElementById('message').textContent.includes('AMD')")
    page.close()
    assert faults == []
