"""A real build as a page while it runs, in a real Chromium: opened at the start, opened late, killed and resumed."""

from __future__ import annotations

import lzma
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import rekindle
from support import browser as browsers
from support.command import rekindle_command
from support.cuda import project

if os.name == "nt":
    pytest.skip("UNVERIFIED: signals to a group are of POSIX", allow_module_level=True)

HOSTILE = '<script>window.ran = 1</script> & "quoted"'
FILES = 12
"""Each takes a second or so, one at a time: long enough to look at, and to be killed among them."""


class LiveBench:
    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(project("spark"), root / "spark")
        self.plan = root / "spark" / "build.toml"
        plan = 'source = "."\nname = "spark"\nversion = "1.0"\nbackend = "cmake"\n\n[options]\nUSE_CUDA = "OFF"\n'
        self.plan.write_text(plan, encoding="utf-8")
        rules = root / "spark" / "CMakeLists.txt"
        names = " ".join(f"part{number}" for number in range(FILES))
        rules.write_text(rules.read_text(encoding="utf-8").replace("alpha beta gamma delta", names), encoding="utf-8")
        core = root / "spark" / "src" / "core.cpp.in"
        core.write_text("#include <regex>\n#include <iostream>\n" + core.read_text(encoding="utf-8"), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> subprocess.Popen[bytes]:
        words = ["build", str(self.plan), "--work", str(self.root / "w"), "--jobs", "1", "--cache", "none", "--serve"]
        env = {
            **os.environ,
            "PYTHONPATH": str(Path(rekindle.__file__).parents[1]),
            "REKINDLE_SHELF": str(self.root / "shelf"),
        }
        with (self.root / "said.txt").open("ab") as log:
            run = subprocess.Popen(
                [sys.executable, "-m", "rekindle", *words, "--port", str(self.port)], env=env, stdout=log, stderr=log
            )
        self._until(lambda: self._answers() or run.poll() is not None, 120)
        assert run.poll() is None, self.said()
        return run

    def kill(self, run: subprocess.Popen[bytes]) -> None:
        below = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGKILL)
        run.wait(timeout=30)
        for process in below:
            if process.is_running():
                process.kill()

    def said(self) -> str:
        return (self.root / "said.txt").read_text(encoding="utf-8", errors="replace")

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _until(self, true: Any, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, self.said()
            time.sleep(0.2)


def test_from_nothing_to_the_report_with_a_kill_between(browser: Any, tmp_path: Path) -> None:
    bench = LiveBench(tmp_path)
    run = bench.start()
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(bench.address)
    browsers.until(page, "document.querySelectorAll('#drawn rect').length >= 2", 300)
    assert browsers.violations(page) == []
    bench.kill(run)
    browsers.until(page, "document.getElementById('link').textContent.includes('does not answer')", 30)
    run = bench.start()
    browsers.until(page, "document.getElementById('link').textContent === 'Live'", 60)
    late = browser.new_page(viewport={"width": 360, "height": 800})
    late.goto(bench.address)
    browsers.until(late, "document.querySelectorAll('#drawn rect').length >= 2", 60)
    assert late.evaluate("document.documentElement.scrollWidth <= 360")
    for opened in (page, late):
        opened.wait_for_selector("#find", timeout=600_000)
        assert "stopped and resumed" in opened.text_content("main")
    assert run.wait(timeout=120) == 0, bench.said()
    text = (tmp_path / "w" / "report.html").read_text(encoding="utf-8")
    assert "Plan and machine" in text and "rekindle verify" in text
    assert (tmp_path / "w" / "trace.json").is_file()
    assert faults == []


RECORDED = Path(__file__).parents[2] / "benchmarks" / "data" / "eta" / "pytorch-1.13.1-sm35-x86_64.csv.xz"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_of_the_real_build_of_pytorch(browser: Any, tmp_path: Path, scheme: str) -> None:
    """1.13.1 for sm_35, from its recorded times: drawn, searched, and read by a screen reader."""
    rows = sorted(
        (line.split(",") for line in lzma.decompress(RECORDED.read_bytes()).decode().splitlines()),
        key=lambda row: int(row[2]),
    )
    lines = [f"{begun}\t{ended}\t0\t{name}\t{name}" for name, begun, ended in rows]
    (tmp_path / ".ninja_log").write_text("# ninja log v6\n" + "\n".join(lines) + "\n", encoding="utf-8")
    target = tmp_path / "report.html"
    seen = rekindle_command("report", str(tmp_path), "-o", str(target), "--title", HOSTILE)
    assert seen.code == 0, seen.err
    page = browser.new_page(viewport={"width": 360, "height": 800}, color_scheme=scheme)
    faults = browsers.watched(page)
    page.goto(target.as_uri())
    assert page.text_content("h1") == HOSTILE and page.evaluate("window.ran === undefined")
    assert page.locator("svg.timeline rect").count() > 1000
    page.fill("#find", "RegisterCUDA")
    browsers.until(page, "document.getElementById('found').textContent.includes(' of ')")
    assert page.locator("svg.timeline rect.found").count() >= 1
    assert page.evaluate("document.documentElement.scrollWidth <= 360")
    assert browsers.violations(page) == []
    page.close()
    assert faults == []
