"""A real Chromium for the tests of pages, and axe-core, which finds what people with a screen reader trip over."""

from __future__ import annotations

import contextlib
import functools
import http.server
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from support.artefacts import cache, unverified

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
AXE = "4.10.2"


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        unverified("no Chromium is installed (Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unverified("playwright is not installed")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


def watched(page: Any) -> list[str]:
    """What the page complains about from now on."""
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    return faults


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


def until(page: Any, true: str, seconds: float = 60) -> None:
    """Wait until an expression holds on the page. Playwright's own way to wait needs `eval`, which the pages forbid."""
    end = time.monotonic() + seconds
    while True:
        # A page that is being loaded anew has nothing to ask for a moment.
        with contextlib.suppress(Exception):
            if page.evaluate(true):
                return
        assert time.monotonic() < end, f"{true} did not come true in {seconds:.0f} s: {page.inner_text('body')[:500]}"
        time.sleep(0.2)


def axe() -> str:
    """The script of axe-core, fetched once by npm and kept outside the repository."""
    folder = cache() / f"axe-core-{AXE}"
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    with FileLock(f"{folder}.lock"):
        if not script.is_file():
            npm = shutil.which("npm")
            if npm is None:
                unverified("npm is not installed")
            done = subprocess.run(
                [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", f"axe-core@{AXE}"],
                capture_output=True, encoding="utf-8", timeout=300, check=False,
            )  # fmt: skip
            if done.returncode or not script.is_file():
                unverified(f"axe-core could not be fetched: {done.stderr[-300:]}")
    return script.read_text(encoding="utf-8")


def violations(page: Any) -> list[str]:
    """Serious and critical ones, each with the element."""
    page.evaluate(axe())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{each['id']}: {node['target']} {node.get('failureSummary', '')[:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
