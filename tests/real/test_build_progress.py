"""What a person sees of a real build: on a real terminal, in a log, in ASCII, and asked for leave."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rekindle
from support.artefacts import unverified

if os.name == "nt":
    pytest.skip("the terminal is a Unix one", allow_module_level=True)

from support.terminal import Terminal

SLOW = "import subprocess, sys, time; time.sleep(float(sys.argv[1])); sys.exit(subprocess.call(sys.argv[2:]))"
RACE = """
import os, subprocess, sys
if not os.path.exists(sys.argv[1]):
    open(sys.argv[1], "w").close()
    sys.exit("fatbinary fatal   : Could not open input file '/tmp/tmpxft_000017c6_00000000-8_r.sm_75.cubin'")
sys.exit(subprocess.call(sys.argv[2:]))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for program in ("g++", "cmake", "ninja"):
        if not shutil.which(program):
            unverified(f"there is no {program} here")
    (tmp_path / "p").mkdir()
    for number in range(6):
        (tmp_path / "p" / f"file{number}.cpp").write_text(f"int f{number}() {{ return {number}; }}\n", encoding="utf-8")
    plan = 'source = "p"\nname = "small"\nversion = "1.0"\nbackend = "cmake"\n'
    (tmp_path / "build.toml").write_text(plan, encoding="utf-8")
    return tmp_path


def project(root: Path, script: str, argument: str) -> None:
    """Six files, each compiled by way of `script`."""
    (root / "launcher.py").write_text(script, encoding="utf-8")
    launch = f'"{sys.executable}" "{root / "launcher.py"}" "{argument}"'
    lines = [
        "cmake_minimum_required(VERSION 3.10)",
        "project(small LANGUAGES CXX)",
        "add_library(small SHARED file0.cpp file1.cpp file2.cpp file3.cpp file4.cpp file5.cpp)",
        f"set_property(TARGET small PROPERTY RULE_LAUNCH_COMPILE [[{launch}]])",
        "install(TARGETS small DESTINATION small/lib)",
    ]
    (root / "p" / "CMakeLists.txt").write_text("\n".join(lines), encoding="utf-8")


def command(root: Path) -> list[str]:
    words = ["build", "build.toml", "--work", "w", "--cache", "none", "--jobs", "2", "--until", "compile"]
    return [sys.executable, "-m", "rekindle", *words]


def environment(root: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR", "COLUMNS", "LINES")}
    own = {"PYTHONPATH": str(Path(rekindle.__file__).parents[1]), "REKINDLE_CACHE": str(root / "cache")}
    return {**kept, **own, "TERM": "xterm", **more}


@pytest.fixture
def terminal(root: Path) -> Iterator[Terminal]:
    project(root, SLOW, "2.5")
    shown = Terminal(command(root), env=environment(root), cwd=root)
    yield shown
    shown.close()


def test_a_terminal_shows_the_step_the_files_and_what_is_left_and_survives_being_resized(terminal: Terminal) -> None:
    assert terminal.until(lambda text: "compile, step 7 of 11" in text)
    assert terminal.until(lambda text: re.search(r"\d s +\d+ MiB +file\d\.cpp", text) is not None), terminal.text
    assert terminal.until(lambda text: " left" in text and "GiB disk free" in text)
    terminal.resize(33)
    assert terminal.until(lambda text: re.search(r"[2-6]/7", text) is not None)
    assert terminal.ended() == 0, terminal.text
    assert re.search(r"compile +\d+\.\d s", terminal.text), "what is over stays on the screen"


@pytest.mark.parametrize("more", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_a_dumb_terminal_gets_plain_lines_and_no_colour_gets_none(root: Path, more: dict[str, str]) -> None:
    project(root, SLOW, "0.1")
    shown = Terminal(command(root), env=environment(root, **more), cwd=root)
    try:
        assert shown.ended() == 0
        assert "\x1b[3" not in shown.raw, "no colour"
        assert more["TERM" if "TERM" in more else "NO_COLOR"] != "dumb" or "\x1b" not in shown.raw
    finally:
        shown.close()


def test_a_log_in_ascii_gets_a_line_now_and_then(root: Path) -> None:
    project(root, SLOW, "1.5")
    env = environment(root, PYTHONIOENCODING="ascii", LC_ALL="C", REKINDLE_HEARTBEAT="1")
    done = subprocess.run(command(root), env=env, cwd=root, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stderr.decode("ascii")
    assert re.search(
        r"^\d\d:\d\d:\d\d  compile  \d/7  (?:(?:about|roughly) \d+ s|\d+ s to [\w ]+) left  2 (?:of 2 )?running",
        said,
        re.M,
    ), said


def test_on_a_terminal_leave_is_asked_and_the_build_goes_on(root: Path) -> None:
    project(root, RACE, str(root / "mark"))
    shown = Terminal(command(root), env=environment(root), cwd=root)
    try:
        assert shown.until(lambda text: "Apply this fix and continue? [Y/n]" in text), shown.text
        assert "compile the file that failed once more" in shown.text
        shown.type("y\n")
        assert shown.ended() == 0, shown.text
    finally:
        shown.close()


def test_without_leave_it_stops_and_says_how_to_go_on(root: Path) -> None:
    project(root, RACE, str(root / "mark"))
    shown = Terminal(command(root), env=environment(root), cwd=root)
    try:
        assert shown.until(lambda text: "Apply this fix and continue? [Y/n]" in text), shown.text
        shown.type("n\n")
        assert shown.ended() == 10
        assert "--auto-fix" in shown.text
    finally:
        shown.close()


def test_the_next_build_of_the_same_files_knows_their_weights(root: Path) -> None:
    """What was timed in one build is what the next estimate starts from, in whatever folder it is built."""
    project(root, SLOW, "0.1")
    env = environment(root)
    subprocess.run(command(root), env=env, cwd=root, capture_output=True, timeout=300, check=True)
    (kept,) = (root / "cache" / "times").glob("*.json")
    text = kept.read_text(encoding="utf-8")
    assert all(f'"small:file{number}.cpp"' in text for number in range(6))
