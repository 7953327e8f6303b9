"""The record of a build, written from its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import build_record

_ENTRIES = (
    {"at": "2026-11-15T10:40:55.211Z", "event": "interrupted", "run": "a", "step": "compile", "seconds": 1007.8},
    {"at": "2026-11-15T10:41:00.050Z", "event": "begin", "run": "b", "step": "compile"},
    {"at": "2026-11-15T11:11:30.000Z", "event": "done", "run": "b", "step": "compile", "seconds": 1830.0},
)
_OBJECT = "caffe2/CMakeFiles/torch_cpu.dir/__/aten/src/ATen/Context.cpp.o"


def test_runs_compiles_and_the_time_left_that_was_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "journal.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in _ENTRIES), encoding="utf-8")
    compiles = (
        {"object": _OBJECT, "start": 1.0, "seconds": 70.0, "peak_kb": 102400, "code": 1},
        {"object": _OBJECT, "start": 2.0, "seconds": 80.0, "peak_kb": 204800, "code": 0},
    )
    (work / "compiles.jsonl").write_text("".join(json.dumps(each) + "\n" for each in compiles), encoding="utf-8")
    log = tmp_path / "run.log"
    said = ("10:41:30  compile  5/973  roughly 1 h 02 min left  2 of 2", "10:42:00  compile  6/973  about 1 h left  2")
    log.write_text("\n".join(said), encoding="utf-8")
    build_record.main([str(work), "The build", str(log)])
    text = capsys.readouterr().out
    assert text.startswith("# The build\n")
    assert "| 2026-11-15T10:40:55 | 1 | compile | interrupted | 1007.8 |" in text
    assert "| 2026-11-15T11:11:30 | 2 | compile | done | 1830.0 |" in text
    assert "| torch_cpu | 1 | 80 | 80 s (`Context.cpp`) | 200 MiB (`Context.cpp`) |" in text
    assert "| 10:41:30 | 5/973 | roughly 1 h 02 min left | 30 min |" in text
    assert "10:42:00" not in text  # every ten minutes is enough
    assert str(tmp_path) not in text
