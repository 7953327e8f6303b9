"""`rekindle report`: what a build's own log says, drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from rekindle.core import console
from rekindle.formats import ninja_log
from rekindle.web import report
from rekindle.web.timeline import timeline, trace
from support.command import rekindle_command


def log(*rows: tuple[int, int, str]) -> bytes:
    lines = [f"{start}\t{end}\t0\t{output}\t{abs(hash(output)):x}" for start, end, output in rows]
    return ("# ninja log v6\n" + "\n".join(lines) + "\n").encode()


OBJECT = "caffe2/CMakeFiles/torch_cuda.dir/__/aten/src/ATen/native/cuda/Sort.cu.o"


def test_commands_that_overlap_are_on_slots_of_their_own() -> None:
    found = timeline(ninja_log.parse(log((0, 2000, "a.cpp.o"), (0, 4000, OBJECT), (2000, 5000, "lib.so"))))
    assert [(bar.name, bar.slot, bar.start, bar.seconds, bar.kind) for bar in found.bars] == [
        ("a.cpp", 0, 0.0, 2.0, "C++"),
        ("Sort.cu", 1, 0.0, 4.0, "CUDA"),
        ("lib.so", 0, 2.0, 3.0, "link"),
    ]
    assert (found.slots, found.wall, found.work, found.runs, found.tail()) == (2, 5.0, 9.0, 1, 1.0)
    assert found.by_target()[0] == ("other", 2, 5.0)


def test_a_resumed_build_is_two_runs_one_behind_the_other() -> None:
    found = timeline(ninja_log.parse(log((0, 3000, "a.o"), (10, 1000, "b.o"), (1000, 2000, "c.o"))))
    assert (found.runs, found.wall) == (2, pytest.approx(4.99))
    assert found.bars[1].start == pytest.approx(3.0)


def test_the_outputs_of_one_command_are_one_bar() -> None:
    data = b"# ninja log v6\n0\t10\t0\tx.h\tc0ffee\n0\t10\t0\tx.cc\tc0ffee\n0\t10\t0\ty.cc\tdecaf\n"
    assert len(timeline(ninja_log.parse(data)).bars) == 2


def test_a_trace_is_what_perfetto_opens() -> None:
    events = trace(timeline(ninja_log.parse(log((0, 2000, "a.cpp.o")))))["traceEvents"]
    assert isinstance(events, list)
    assert events[-1]["ph"] == "X" and events[-1]["dur"] == 2_000_000


def test_a_hostile_name_does_not_run(tmp_path: Path) -> None:
    (tmp_path / ".ninja_log").write_bytes(log((0, 5, "<script>alert(1)</script>.cpp.o"), (0, 9, "<b>x.o")))
    text = report.html(report.build_report(tmp_path, title="<img src=x onerror=alert(1)>"))
    assert "<script>alert" not in text and "<img" not in text
    assert "&lt;b&gt;x" in text
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy and "unsafe-inline" not in policy[1] and "default-src &#39;none&#39;" in policy[1]


def test_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / ".ninja_log").write_bytes(log((0, 2000, "a.cpp.o"), (500, 4000, OBJECT)))
    out, traced = tmp_path / "r.html", tmp_path / "t.json"
    seen = rekindle_command("report", str(tmp_path), "-o", str(out), "--trace", str(traced))
    assert seen.code == 0, seen.err
    assert "2 commands, 4 s" in seen.out
    assert "Sort.cu" in out.read_text(encoding="utf-8")
    assert json.loads(traced.read_text(encoding="utf-8"))["traceEvents"]
    answer = rekindle_command("report", str(tmp_path), "--json")
    assert json.loads(answer.out)["timeline"]["slots"] == 2


@pytest.mark.parametrize(("name", "code"), [("nothing", 14), ("empty", 14), ("bad", 4)])
def test_bad_input_is_said(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").write_text("hello", encoding="utf-8")
    seen = rekindle_command("report", str(tmp_path / name), "-o", str(tmp_path / "r.html"))
    assert seen.code == code
    assert "hint:" in seen.err
    assert not (tmp_path / "r.html").exists()


def test_what_the_cache_saved_is_on_the_page(tmp_path: Path) -> None:
    """Two runs, one of them with a note that nobody can read; ten compiles of which five missed took 50 s."""
    rows = [(1000 * number, 1000 * number + (10_000 if number < 5 else 1), f"{number}.cpp.o") for number in range(10)]
    (tmp_path / ".ninja_log").write_bytes(log(*rows))
    note = json.dumps({"launcher": "ccache", "hits": 5, "misses": 5})
    entries = [{"at": "2026-11-15T10:00:00", "event": "cache", "run": "a", "note": each} for each in (note, "{")]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(each) + "\n" for each in entries), encoding="utf-8")
    found = report.build_report(tmp_path)
    assert found.cache.startswith("5 of 10 compiles came out of ccache (50 %), which saved about 50 s of work")
    assert found.cache in report.html(found)


def test_gpu_code_is_shown_in_bytes(tmp_path: Path) -> None:
    (tmp_path / ".ninja_log").write_bytes(log((0, 5, "a.o")))
    wheel = report.WheelSummary(name="x.whl", bytes=9, targets={"sm_35": 2, "sm_61": 1}, sizes={"sm_35": 1_500_000})
    text = report.html(msgspec.structs.replace(report.build_report(tmp_path), wheels=(wheel,)))
    assert "1.5 MB" in text and "not measured" in text


def test_times_and_sizes_as_people_read_them() -> None:
    assert [console.duration(each) for each in (0.44, 48, 719, 7500)] == ["0.4 s", "48 s", "12 min", "2 h 05 min"]
    assert [console.size(each) for each in (12, 1500, 2_500_000, 3e9)] == ["12 B", "1.5 kB", "2.5 MB", "3.0 GB"]
