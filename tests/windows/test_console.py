r"""What a person sees and what a script reads, where stdout is cp1252 (a pipe or a file on Windows) or less.

Wine cannot vouch for: a real console window, its fonts and its code page; Windows Terminal; Ctrl-C
and Ctrl-Break as a console delivers them (there is none in the bench: the signals are raised inside the process).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SAY = "from rekindle.core import console; console.out('K40c – 12 GB → 1080 Ti ≥ sm_61 日本 é')"
SAY_JSON = "from rekindle.core import console; console.out_json({'name': 'Zoë – 日本 😀'})"


def _said(code: str, **env: str) -> bytes:
    whole = {**os.environ, **env}
    return subprocess.run([sys.executable, "-c", code], env=whole, capture_output=True, timeout=60, check=True).stdout


def test_a_pipe_is_cp1252_and_nothing_crashes() -> None:
    assert _said("import sys; print(sys.stdout.encoding)").strip() == b"cp1252"
    assert _said(SAY).decode("cp1252") == "K40c - 12 GB -> 1080 Ti >= sm_61 ?? é\r\n"


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "utf-8"])
def test_every_code_page_gets_something_readable(encoding: str) -> None:
    text = _said(SAY, PYTHONIOENCODING=encoding).decode(encoding)
    assert text.startswith("K40c")
    assert "sm_61" in text


@pytest.mark.parametrize("encoding", ["", "ascii", "cp437", "utf-8"])
def test_json_is_whole_and_utf_8_whatever_the_code_page(encoding: str) -> None:
    data = _said(SAY_JSON, **({"PYTHONIOENCODING": encoding} if encoding else {}))
    assert json.loads(data.decode("utf-8")) == {"name": "Zoë – 日本 😀"}


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "from rekindle.core import console\nfor _ in range(20000): console.out('x' * 80)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGBREAK"])
def test_ctrl_c_and_ctrl_break_end_with_the_code_of_an_interruption(name: str) -> None:
    code = (
        "import signal, time\n"
        "from rekindle.cli import main\n"
        "def wait(**_):\n"
        f"    signal.raise_signal(signal.{name})\n"
        "    time.sleep(5)\n"
        "    raise SystemExit(0)\n"
        "main.cli.callback = wait\n"
        "main.main(['--knowledge', '.', 'gpu'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == 130
    assert b"interrupted" in done.stderr
    assert b"Traceback" not in done.stderr
