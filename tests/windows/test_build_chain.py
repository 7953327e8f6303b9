r"""A real Windows-side build: `.cmd` -> cmake.exe -> ninja.exe -> tcc.exe -> app.exe, below a folder with a space,
parentheses and letters outside ASCII.

Wine cannot vouch for: MSVC and nvcc (not available here; tcc stands for the compiler), response files of `link`,
the speed of anything, antivirus locks on fresh executables.
"""

from __future__ import annotations

import _thread
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from programs import program

from rekindle.build.run import journal as runner
from rekindle.build.run.journal import Journal
from rekindle.core import run
from rekindle.core.errors import Interrupted

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
if not %ERRORLEVEL%==0 exit /b 11
"%RK_CMAKE%" --build "%~dp0out"
if not %ERRORLEVEL%==0 exit /b 12
"%~dp0out\\app.exe"
"""


@pytest.fixture
def project() -> Iterator[Path]:
    """Not below `tmp_path`: with pytest's long names in front, cmake.exe crashes under Wine (0xC0000005) in a build
    folder of 119 characters, and works in one of 109."""
    with tempfile.TemporaryDirectory(prefix="rk", ignore_cleanup_errors=True) as short:
        yield _project(Path(short) / "My Build (x86) Größe")


def _project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    (folder / "main.c").write_text(MAIN, encoding="utf-8")
    (folder / "part.c").write_text("int part(void) { return 42; }\n", encoding="utf-8")
    (folder / "build.cmd").write_bytes(LAUNCHER.replace("\n", "\r\n").encode("ascii"))
    return folder


def tools() -> dict[str, str]:
    names = {f"RK_{name.upper()}": program(name).as_posix() for name in ("cmake", "ninja", "tcc")}
    return {**os.environ, **names}


def test_a_compile_error_comes_back_as_text_and_as_a_code(project: Path) -> None:
    (project / "part.c").write_text("int part(void) { return größe; }\n", encoding="utf-8")
    said = run.call([project / "build.cmd"], env=tools(), timeout=240)
    assert said.code == 12
    assert re.search(r"part\.c:1: error:", said.out + said.err)
    assert not (project / "out" / "app.exe").exists()


SLOW = f"""rule slow
  command = "{sys.executable}" -c "import time, sys; time.sleep(float(sys.argv[2])); open(sys.argv[1], 'w')" $out $delay
build first: slow
  delay = 0
build second: slow
  delay = 60
"""
# Rekindle's runner in a process of its own, so that it can be killed alone.
RUNNER = """
import os, sys
from pathlib import Path
from rekindle.build.run import journal as runner
from rekindle.build.run.journal import Journal
folder = Path(sys.argv[1])
journal = Journal(folder / "journal.jsonl")
record = runner.StepLog(step="compile", log=folder / "log", journal=journal)
done = runner.run_program([sys.argv[2], "-j1", "first", "second"], record, env=os.environ, cwd=folder)
sys.exit(done)
"""


def test_killed_alone_it_leaves_no_ninja_behind_and_goes_on_when_run_again(project: Path) -> None:
    (project / "build.ninja").write_text(SLOW, encoding="utf-8")
    words = [sys.executable, "-c", RUNNER, str(project), str(program("ninja"))]
    with subprocess.Popen(words) as rekindle:
        for _ in range(600):
            if (project / "first").exists():
                break
            time.sleep(0.1)
        time.sleep(1)
        below = psutil.Process(rekindle.pid).children(recursive=True)
        rekindle.kill()
    assert below, "ninja had nothing running"
    psutil.wait_procs(below, timeout=20)
    assert not [process for process in below if process.is_running()]
    assert not (project / "second").exists()
    made = (project / "first").stat().st_mtime_ns
    (project / "build.ninja").write_text(SLOW.replace("delay = 60", "delay = 0"), encoding="utf-8")
    again = run.call(words, timeout=120)
    assert again.ok, again.out + again.err
    assert (project / "first").stat().st_mtime_ns == made, "what was finished was done twice"
    assert (project / "second").exists()


def test_our_runner_logs_decodes_and_returns_the_code_of_the_chain(project: Path) -> None:
    seen: list[str] = []
    journal = Journal(project / "journal.jsonl")
    log = project / "build.log"
    record = runner.StepLog(step="compile", log=log, journal=journal)
    done = runner.run_program([str(project / "build.cmd")], record, env=tools(), cwd=project, observe=seen.append)
    assert done == 42
    assert "part says 42" in seen
    text = log.read_text(encoding="utf-8")
    assert "part says 42" in text
    assert "\r" not in text
    assert [entry.code for entry in journal.entries if entry.event == "ended"] == [42]
    app = run.call([project / "out" / "app.exe"])
    assert (app.out, app.code) == ("part says 42\n", 42)


def test_ctrl_c_is_heard_while_the_compiler_is_silent(project: Path) -> None:
    journal = Journal(project / "journal.jsonl")
    record = runner.StepLog(step="compile", log=project / "log", journal=journal)
    timer = threading.Timer(4, _thread.interrupt_main)
    begun = time.monotonic()
    timer.start()
    try:
        with pytest.raises(Interrupted, match="interrupted during compile"):
            runner.run_program(
                [sys.executable, "-c", "import time; time.sleep(100)"], record, env=os.environ, cwd=project
            )
    finally:
        timer.cancel()  # or it would interrupt whatever runs next
    assert time.monotonic() - begun < 40
