"""The bench that runs the tests as win32 must never call a run good that did not take place."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

posix = pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: the bench itself runs on Linux")


def bench() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "windows_bench.py"
    spec = importlib.util.spec_from_file_location("windows_bench", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["windows_bench"] = module
    spec.loader.exec_module(module)
    return module


def python(tmp_path: Path, report: str | None, code: int) -> Any:
    def call(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        if report is not None:
            (tmp_path / f"report-{os.getpid()}.xml").write_text(report, encoding="utf-8")
        return subprocess.CompletedProcess(command, code)

    return SimpleNamespace(
        bench=SimpleNamespace(folder=tmp_path, call=call, emulator=()), executable="python.exe", minor="3.11"
    )


@posix
def test_a_python_that_vanished_with_code_0_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench().tests(python(tmp_path, None, 0), [], 10.0) == 1
    assert "left no report" in capsys.readouterr().out


@posix
def test_a_run_with_its_report_says_how_many_tests_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = '<testsuites><testsuite tests="9" skipped="2"/></testsuites>'
    assert bench().tests(python(tmp_path, report, 0), [], 10.0) == 0
    assert "7 tests run, 2 could not be" in capsys.readouterr().out
