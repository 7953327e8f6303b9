"""Programs of a build: logged with times, ended with all they have started, found again after a crash."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rekindle.build.configure.environment import MARK
from rekindle.build.run import build
from rekindle.build.run import journal as program
from rekindle.build.run.folders import Folders, held
from rekindle.build.run.journal import Journal
from rekindle.core.errors import Locked, MissingTool

posix = pytest.mark.skipif(os.name == "nt", reason="Windows ends a group by its Job Object")


def _record(log: Path, journal: Journal, step: str) -> program.StepLog:
    return program.StepLog(step=step, log=log, journal=journal)


def run_python(tmp_path: Path, code: str, mark: str = "m") -> int:
    env = {**os.environ, MARK: mark}
    args = [sys.executable, "-c", code]
    journal = Journal(tmp_path / "journal.jsonl")
    return program.run_program(args, _record(tmp_path / "step.log", journal, "compile"), env=env, cwd=tmp_path)


def test_every_line_of_the_log_has_its_time_and_the_command_is_first(tmp_path: Path) -> None:
    outcome = run_python(tmp_path, "import sys; print('out', flush=True); print('err', file=sys.stderr)")
    lines = (tmp_path / "step.log").read_text(encoding="utf-8").splitlines()
    assert outcome == 0
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line) for line in lines)
    assert lines[0].split(" ")[1] == "+"
    assert [line.split(" ", 1)[1] for line in lines[1:]] == ["out", "err"]


def test_bytes_that_are_no_text_reach_the_log_as_they_are(tmp_path: Path) -> None:
    run_python(tmp_path, "import sys; sys.stdout.buffer.write(b'caf\\xe9 \\xff\\n')")
    assert b"caf\xe9 \xff\n" in (tmp_path / "step.log").read_bytes()


def test_the_exit_code_is_the_programs_own(tmp_path: Path) -> None:
    assert run_python(tmp_path, "raise SystemExit(7)") == 7


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with pytest.raises(MissingTool, match="no-such-program"):
        program.run_program(["no-such-program"], _record(tmp_path / "l", journal, "x"), env=os.environ, cwd=tmp_path)


def test_the_journal_names_the_process_before_it_ends(tmp_path: Path) -> None:
    run_python(tmp_path, "pass")
    events = [entry.event for entry in Journal(tmp_path / "journal.jsonl").entries]
    assert events == ["process", "ended"]


def test_a_finished_log_is_compressed_and_says_the_same(tmp_path: Path) -> None:
    import gzip

    log = tmp_path / "step.log"
    log.write_bytes(b"hello\n")
    packed = program.compress_log(log)
    assert not log.exists() and gzip.decompress(packed.read_bytes()) == b"hello\n"


@posix
def test_what_a_killed_run_left_behind_is_found_by_group_and_mark_and_ended(tmp_path: Path) -> None:
    """A leader with a child, as ninja with its compilers; the run that started them never wrote their end."""
    sleep = "import time; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleep!r}]); {sleep}"
    left = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, MARK: "here"}, start_new_session=True)
    try:
        journal = Journal(tmp_path / "journal.jsonl")
        journal.write("process", step="compile", pid=left.pid)
        limit = time.monotonic() + 120
        while len(psutil.Process(left.pid).children()) < 1 and time.monotonic() < limit:
            time.sleep(0.02)
        child = psutil.Process(left.pid).children()[0]
        assert build.end_orphans(journal, "elsewhere") == (), "another build's processes are not ours"
        assert left.poll() is None
        journal.write("process", step="compile", pid=left.pid)
        ended = build.end_orphans(journal, "here")
        assert set(ended) == {left.pid, child.pid}
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
        assert build.end_orphans(journal, "here") == (), "once is enough"
    finally:
        left.kill()
        left.wait()


def test_a_second_run_is_refused_with_the_number_of_the_first(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "b")
    code = (
        "import sys, time; from pathlib import Path\n"
        "from rekindle.build.run.folders import Folders; from rekindle.build.run.folders import held\n"
        "with held(Folders(Path(sys.argv[1]))): print('held', flush=True); time.sleep(30)"
    )
    import rekindle

    env = {**os.environ, "PYTHONPATH": str(Path(rekindle.__file__).parents[1])}
    first = subprocess.Popen([sys.executable, "-c", code, str(folders.root)], stdout=subprocess.PIPE, env=env)
    try:
        assert first.stdout is not None and first.stdout.readline().strip() == b"held"
        with pytest.raises(Locked, match=f"process {first.pid}"), held(folders):
            pass
    finally:
        first.kill()
        first.communicate()
    with held(folders):
        assert folders.running.exists(), "a dead run's lock is no lock"
