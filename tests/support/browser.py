"""A real Chromium for the tests of pages, and axe-core, which finds what people with a screen reader trip over."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from support.artefacts import cache, made_once, unverified

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
AXE = "4.10.2"


DEATHS: list[str] = []
"""Of browsers that ended by themselves, in the order in which that was seen."""


class Chromium:
    """One browser for the tests of a module, started when it is first needed, and anew when it has died."""

    def __init__(self, launch: Callable[..., Any], program: str, folder: Path) -> None:
        self._launch, self._program, self._folder = launch, program, folder
        self._running: Any = None

    def browser(self) -> Any:
        if self._running is None:
            self._running = self._launch(executable_path=str(self._watched_program()), args=list(FLAGS))
        return self._running

    def note_death(self) -> None:
        if self._running is None or self._running.is_connected():
            return
        self._running = None
        DEATHS.append(f"Chromium died ({self._ended()}): {self._said()}")

    def close(self) -> None:
        if self._running is not None:
            self._running.close()

    @property
    def process(self) -> int:
        return int(self._read("process"))

    def hurry(self, nice: int = -15) -> None:
        """Put the browser before other programs, thread by thread, because it sets the priority of each itself.

        For measuring on a machine that others use too; does nothing for whoever may not.
        """
        with contextlib.suppress(psutil.Error, OSError):
            first = psutil.Process(self.process)
            for each in (first, *first.children(recursive=True)):
                for thread in each.threads():
                    os.setpriority(os.PRIO_PROCESS, thread.id, nice)

    def _watched_program(self) -> Path:
        """Chromium behind a script that keeps what it writes and how it ends: Playwright drops both."""
        if os.name == "nt":
            return Path(self._program)
        for name in ("said", "ended"):
            (self._folder / name).write_text("", encoding="utf-8")
        script = self._folder / "chromium"
        kept = shlex.quote(str(self._folder))
        started = f'{shlex.quote(self._program)} "$@" 2>>{kept}/said &'
        lines = ["#!/bin/sh", started, f"echo $! >{kept}/process", "wait $!", f"echo $? >{kept}/ended"]
        script.write_text("\n".join([*lines, ""]), encoding="utf-8")
        script.chmod(0o755)
        return script

    def _ended(self) -> str:
        for _ in range(50):
            if code := self._read("ended").strip():
                number = int(code)
                return f"signal {signal.Signals(number - 128).name}" if number > 128 else f"exit code {number}"
            time.sleep(0.1)
        return "no exit code"

    def _said(self) -> str:
        lines = [line.strip() for line in self._read("said").splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-600:] or "it wrote nothing"

    def _read(self, name: str) -> str:
        file = self._folder / name
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        unverified("no Chromium is installed (Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unverified("playwright is not installed")
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        made = Chromium(play.chromium.launch, found, Path(folder))
        yield made
        made.close()


def watched(page: Any) -> list[str]:
    """What the page complains about from now on."""
    faults: list[str] = []
    page.on("crash", lambda _: faults.append("the page crashed"))
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
    script = Path("node_modules", "axe-core", "axe.min.js")

    def fetch(folder: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            unverified("npm is not installed")
        done = subprocess.run(
            [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", f"axe-core@{AXE}"],
            capture_output=True, encoding="utf-8", timeout=300, check=False,
        )  # fmt: skip
        if done.returncode or not (folder / script).is_file():
            unverified(f"axe-core could not be fetched: {done.stderr[-300:]}")

    return (made_once(cache() / f"axe-core-{AXE}", fetch) / script).read_text(encoding="utf-8")


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
