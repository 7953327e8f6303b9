r"""A real Windows-side build: `.cmd` -> cmake.exe -> ninja.exe -> tcc.exe -> app.exe, below a folder with a space,
parentheses and letters outside ASCII.

Wine cannot vouch for: MSVC and nvcc (they cannot be had here; tcc stands for the compiler), response files of `link`,
the speed of anything, antivirus locks on fresh executables.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import psutil
import pytest
from programs import program

from rekindle import run
from rekindle.processes import Started

CMAKE = """cmake_minimum_required(VERSION 3.20)
project(app C)
file(GLOB parts ${CMAKE_SOURCE_DIR}/part*.c)
add_executable(app main.c ${parts})
"""
MAIN = """#include <stdio.h>
int part(void);
int main(void) { printf("part says %d\\n", part()); return part(); }
"""
LAUNCHER = """@echo off
"%RK_CMAKE%" -S "%~dp0." -B "%~dp0out" -G Ninja "-DCMAKE_MAKE_PROGRAM=%RK_NINJA%" "-DCMAKE_C_COMPILER=%RK_TCC%"
if errorlevel 1 exit /b 11
"%RK_CMAKE%" --build "%~dp0out"
if errorlevel 1 exit /b 12
"%~dp0out\\app.exe"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "My Build (x86) Größe"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    (folder / "main.c").write_text(MAIN, encoding="utf-8")
    (folder / "part.c").write_text("int part(void) { return 42; }\n", encoding="utf-8")
    (folder / "build.cmd").write_bytes(LAUNCHER.replace("\n", "\r\n").encode("ascii"))
    return folder


def tools() -> dict[str, str]:
    names = {f"RK_{name.upper()}": program(name).as_posix() for name in ("cmake", "ninja", "tcc")}
    return {**os.environ, **names}


def test_the_whole_chain_ends_with_the_exit_code_of_what_it_built(project: Path) -> None:
    said = run.call([project / "build.cmd"], env=tools(), timeout=240)
    assert "part says 42" in said.out, said.out + said.err
    assert said.code == 42
    app = run.call([project / "out" / "app.exe"])
    assert (app.out, app.code) == ("part says 42\n", 42)


def test_a_compile_error_comes_back_as_text_and_as_a_code(project: Path) -> None:
    (project / "part.c").write_text("int part(void) { return größe; }\n", encoding="utf-8")
    said = run.call([project / "build.cmd"], env=tools(), timeout=240)
    assert said.code == 12
    assert re.search(r"part\.c:1: error:", said.out + said.err)
    assert not (project / "out" / "app.exe").exists()


def test_killed_in_the_middle_and_run_again_it_goes_on(project: Path) -> None:
    """ninja is ended with its compilers; a second run repeats nothing that was finished."""
    env = tools()
    slow = f'"{sys.executable}" -c "import time, sys; time.sleep(float(sys.argv[2])); open(sys.argv[1], \'w\')"'
    rules = (
        f"rule slow\n  command = {slow} $out $delay\nbuild first: slow\n  delay = 0\nbuild second: slow\n  delay = 40\n"
    )
    (project / "build.ninja").write_text(rules, encoding="utf-8")
    ninja = [env["RK_NINJA"], "-j1", "first", "second"]
    with Started(ninja, cwd=project) as started:
        for _ in range(300):
            if (project / "first").exists():
                break
            time.sleep(0.1)
        time.sleep(1)
        below = psutil.Process(started.pid).children(recursive=True)
        assert below, "ninja had nothing running"
        started.end()
    assert not any(child.is_running() for child in below)
    assert not (project / "second").exists()
    made = (project / "first").stat().st_mtime_ns
    (project / "build.ninja").write_text(rules.replace("delay = 40", "delay = 0"), encoding="utf-8")
    said = run.call(ninja, cwd=project, timeout=60)
    assert said.ok, said.out
    assert (project / "first").stat().st_mtime_ns == made
    assert (project / "second").exists()
