"""What becomes of a test whose browser dies: repeated once and said; a page that crashes fails at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import browser as browsers

TESTS = Path(__file__).resolve().parent.parent
CASES = """
import os, pathlib, signal, pytest

@pytest.mark.parametrize("times", [1, 2])
def test_dies(browser, chromium, times):
    ran = pathlib.Path(f"ran-{times}")
    count = int(ran.read_text()) if ran.exists() else 0
    ran.write_text(str(count + 1))
    page = browser.new_page()
    if count < times:
        os.kill(chromium.process, signal.SIGSEGV)
    page.goto("about:blank")
    page.close()

def test_page_crashes(browser):
    ran = pathlib.Path("crashes")
    ran.write_text(ran.read_text() + "x" if ran.exists() else "x")
    page = browser.new_page()
    page.goto("chrome://crash")

def test_afterwards(browser):
    browser.new_page().close()
"""


def test_a_dead_browser_is_started_anew_once_and_said(tmp_path: Path) -> None:
    with browsers.chromium():
        pass
    (tmp_path / "test_inner.py").write_text(CASES, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    words = ["-p", "support.browser_again", "-p", "no:cacheprovider", "-q", "-rA", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "test_inner.py"],
        cwd=tmp_path, env=env, capture_output=True, encoding="utf-8", timeout=300, check=False,
    )  # fmt: skip
    said = done.stdout
    assert "2 failed, 2 passed" in said, said + done.stderr
    assert "PASSED test_inner.py::test_dies[1]" in said and "PASSED test_inner.py::test_afterwards" in said
    assert "test_dies[1]: Chromium died (signal SIGSEGV)" in said and "the test passed" in said
    assert "test_dies[2]: Chromium died (signal SIGSEGV)" in said and "failed again" in said
    assert (tmp_path / "crashes").read_text(encoding="utf-8") == "x"
