"""Programs and what they start, and how Windows is told to run one (the latter in pure functions, on any system)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from rekindle.core import python, run
from rekindle.core.errors import BadInput, FetchFailed
from rekindle.core.processes import Started, command_line
from support.pace import seconds

GRANDCHILD = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GRANDCHILD!r}, sys.argv[1]])"


def test_at_the_time_limit_children_of_children_are_ended_too(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with Started([sys.executable, "-c", CHILD, note]) as started:
        _wait_for(note)
        started.end()
    assert _gone(int(note.read_text(encoding="ascii")))


def test_a_call_that_is_late_says_so_and_does_not_wait_for_inherited_pipes() -> None:
    sleeper = "import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', %r])"
    said = run.call([sys.executable, "-c", sleeper % "import time; time.sleep(7200)"], timeout=max(1.5, seconds(0.6)))
    assert said.timed_out
    assert said.code is None
    assert said.out == "begun\n"


def test_an_error_inside_the_block_ends_the_program() -> None:
    with pytest.raises(KeyboardInterrupt), Started([sys.executable, "-c", "import time; time.sleep(60)"]) as started:
        raise KeyboardInterrupt
    assert started.process.poll() is not None


@pytest.mark.skipif(sys.platform != "linux", reason="only there a file that is open for writing cannot be started")
def test_a_program_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 3\n", encoding="ascii")
    program.chmod(0o755)
    with program.open("a", encoding="ascii") as written:
        threading.Timer(0.2, written.close).start()
        assert Started([program]).process.wait(seconds(10)) == 3


def test_input_and_output_go_through() -> None:
    upper = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('done')"
    said = run.call([sys.executable, "-c", upper], input=b"kepler")
    assert (said.out, said.err, said.code) == ("KEPLER", "done", 0)


def test_a_program_for_windows_is_quoted_as_its_c_runtime_reads_it() -> None:
    assert command_line([r"C:\a b\x.exe", "a b", 'c"d', ""], {}) == r'"C:\a b\x.exe" "a b" c\"d ""'


def test_a_batch_file_is_given_to_cmd_with_every_argument_quoted() -> None:
    line = command_line([r"C:\VS (x86)\b.CMD", "a&b", "c d"], {})
    assert line.endswith(r'\cmd.exe /d /v:off /s /c ""C:\VS (x86)\b.CMD" "a&b" "c d""')


@pytest.mark.parametrize("bad", ['a"b', "%PATH%", "a\nb"])
def test_what_cmd_would_read_as_its_own_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="unharmed"):
        command_line([r"C:\b.bat", bad], {})
    assert command_line([r"C:\b.exe", bad], {})


def test_json_is_ascii_where_stdout_is_not_utf_8() -> None:
    code = "from rekindle.core import console; console.out_json({'name': 'Zoë – 日本 😀'})"
    for encoding in ("ascii", "cp1252", "utf-8"):
        env = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": os.pathsep.join(sys.path)}
        out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout
        assert json.loads(out.decode("utf-8")) == {"name": "Zoë – 日本 😀"}


def _wait_for(note: Path) -> None:
    for _ in range(200):
        if note.is_file() and note.read_text(encoding="ascii"):
            return
        time.sleep(0.05)
    pytest.fail("the grandchild did not start")


def _gone(pid: int) -> bool:
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("system", "machine", "tags"),
    [
        ("linux", "x86_64", {"manylinux1_x86_64", "manylinux2014_x86_64", "manylinux_2_31_x86_64"}),
        ("linux", "aarch64", {"manylinux2014_aarch64", "manylinux_2_35_aarch64"}),
        ("windows", "x86_64", {"win_amd64"}),
        ("windows", "aarch64", {"win_arm64"}),
    ],
)
def test_pip_is_told_of_every_glibc_that_a_wheel_of_another_computer_may_name(
    system: str, machine: str, tags: set[str]
) -> None:
    """`plan --bundle` named six of them: a wheel for glibc 2.31 was "not found"."""
    words = python.for_system(system, machine)
    assert set(words[::2]) == {"--platform"} and tags <= set(words[1::2])


def test_pips_report_is_read_in_one_place_and_refused_where_it_is_none() -> None:
    info = {
        "url": "https://x/a-1.0%2Bcu118-py3-none-any.whl#sha256=0",
        "archive_info": {"hashes": {"sha256": "ab" * 32}},
    }
    row = {"metadata": {"name": "a", "version": "1.0"}, "download_info": info}
    (wheel,) = python.pip_report("a word before\n" + json.dumps({"install": [row]}))
    assert (wheel.name, wheel.sha256, wheel.direct) == ("a", "ab" * 32, False)
    assert wheel.file == "a-1.0+cu118-py3-none-any.whl"
    for text in ("", "{}", '{"install": [{}]}', '{"install": [{"metadata": 3, "download_info": []}]}'):
        with pytest.raises(FetchFailed, match="report"):
            python.pip_report(text)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_that_says_too_much_is_ended(stream: str) -> None:
    endless = f"import sys\nwhile True: sys.{stream}.write('x' * 65536)"
    said = run.call([sys.executable, "-c", endless], timeout=seconds(30), most=1 << 20)
    assert said.too_much and said.started and not said.timed_out and not said.ok
    assert len(said.out + said.err) < 2 << 20
    with pytest.raises(BadInput, match="was ended after it had said"):
        run.checked(said, doing="ask it")
