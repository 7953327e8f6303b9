r"""Running programs as Windows does: quoting, batch files, exit codes, what is found on PATH, what is left running.

Wine cannot vouch for: exit codes of cmd's own syntax errors; the code page of a real console (there is none in the
bench); Ctrl-C typed into a console window; PowerShell; what User Account Control or a virus scanner refuses.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rekindle.core import run
from rekindle.core.processes import Started, command_line
from support import pace

ECHO = "import sys; sys.stdout.buffer.write('|'.join(sys.argv[1:]).encode('utf-8'))"
AWKWARD = [
    "a b",
    "",
    'say "hi"',
    "C:\\dir\\",
    "C:\\a b\\",
    "100%PATH%",
    "a&b|c",
    "(x86)",
    "^caret!",
    "Zoë 日本",
    "tab\there",
]


def test_arguments_arrive_as_they_were_given() -> None:
    said = run.call([sys.executable, "-c", ECHO, *AWKWARD])
    assert said.out.split("|") == "|".join(AWKWARD).split("|")
    assert said.ok


@pytest.mark.parametrize("code", [0, 1, 3, 255, 0xC0000005, 0xC0000135])
def test_the_whole_exit_code_is_seen(code: int) -> None:
    ending = f"import ctypes; ctypes.windll.kernel32.ExitProcess({code})"
    assert run.call([sys.executable, "-c", ending]).code == code


def test_a_batch_file_gets_its_arguments_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    batch = tmp_path / "my tool (x86) & co" / "build.cmd"
    batch.parent.mkdir()
    batch.write_bytes(b'@echo off\r\necho ["%~1"] ["%~2"] ["%~3"]\r\nexit /b 7\r\n')
    said = run.call([batch, "a & echo stolen", "(x86)", "x^y!z"])
    assert said.out.strip() == '["a & echo stolen"] ["(x86)"] ["x^y!z"]'
    assert said.code == 7


def test_what_a_batch_file_cannot_be_given_is_refused(tmp_path: Path) -> None:
    batch = tmp_path / "tool.bat"
    batch.write_bytes(b"@exit /b 0\r\n")
    for bad in ('a"b', "%PATH%", "line\nbreak"):
        said = run.call([batch, bad])
        assert not said.started
        assert "unharmed" in said.err


def test_a_bare_name_is_found_along_the_path_the_program_will_have(tmp_path: Path) -> None:
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "rk-tool.cmd").write_bytes(f"@echo {place}\r\n".encode())
    path = f"{tmp_path / 'second'};{tmp_path / 'first'};{os.environ['PATH']}"
    said = run.call(["rk-tool"], env={**_without("PATH"), "Path": path})
    assert said.out.strip() == "second"


def test_the_current_folder_is_no_place_to_find_programs(tmp_path: Path) -> None:
    (tmp_path / "rk-planted.cmd").write_bytes(b"@echo planted\r\n")
    assert not run.call(["rk-planted"], cwd=tmp_path).started


def test_a_missing_program_is_an_answer() -> None:
    said = run.call(["rk-there-is-no-such-program", "--version"])
    assert not said.started
    assert said.err


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Zoë 日本".encode("utf-16"), "Zoë 日本"),
        ("NVIDIA GeForce\r\n".encode("utf-16-le"), "NVIDIA GeForce\n"),
        ("Übersetzer".encode(), "Übersetzer"),
        ("Übersetzer für x64".encode("cp437"), "Übersetzer für x64"),
        ("Übersetzer für x64".encode("cp1252"), "Übersetzer für x64"),
    ],
)
def test_what_programs_say_is_decoded_by_what_it_is(data: bytes, text: str) -> None:
    printer = f"import sys; sys.stdout.buffer.write(bytes.fromhex('{data.hex()}'))"
    assert run.call([sys.executable, "-c", printer]).out == text


def test_cmd_u_is_utf_16() -> None:
    cmd = os.environ["COMSPEC"]
    said = run.call([cmd, "/u", "/d", "/c", "echo", "Zażółć–日本"], encoding="utf-16-le")
    assert said.out.strip() == "Zażółć–日本"


def test_at_the_time_limit_children_of_children_are_ended_too(tmp_path: Path) -> None:
    """The grandchild inherits the pipe: a program that is only ended itself would leave the caller waiting."""
    note = tmp_path / "pid"
    grandchild = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(7200)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}, sys.argv[1]])"
    said = run.call([sys.executable, "-c", child, note], timeout=pace.seconds(6))
    assert said.timed_out
    assert not psutil.pid_exists(int(note.read_text(encoding="ascii")))


def test_what_is_left_running_on_purpose_goes_on(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    server = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(20)"
    child = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {server!r}, sys.argv[1]], stdin=-3, stdout=-3, stderr=-3)"
    )
    assert run.call([sys.executable, "-c", child, note], timeout=30).ok
    for _ in range(100):
        if note.is_file() and note.read_text(encoding="ascii"):
            break
        time.sleep(0.1)
    server_process = psutil.Process(int(note.read_text(encoding="ascii")))
    assert server_process.is_running()
    server_process.kill()


def test_the_job_dies_with_the_process_that_holds_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    holder = (
        "import sys, time\n"
        "from rekindle.core.processes import Started\n"
        "child = \"import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)\"\n"
        "started = Started([sys.executable, '-c', child, sys.argv[1]])\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", holder, str(note)]) as process:
        for _ in range(int(pace.seconds(200))):
            if note.is_file() and note.read_text(encoding="ascii"):
                break
            time.sleep(0.1)
        process.kill()
    pid = int(note.read_text(encoding="ascii"))
    for _ in range(50):
        if not psutil.pid_exists(pid):
            break
        time.sleep(0.1)
    assert not psutil.pid_exists(pid)


def test_an_error_inside_the_block_ends_the_program() -> None:
    with pytest.raises(KeyboardInterrupt), Started([sys.executable, "-c", "import time; time.sleep(60)"]) as started:
        raise KeyboardInterrupt
    assert started.process.poll() is not None


def test_a_command_line_for_a_program_is_pythons_own() -> None:
    words = [sys.executable, *AWKWARD]
    assert command_line(words, None) == subprocess.list2cmdline(words)


def _without(name: str) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key.upper() != name}
