r"""Job tokens by a named semaphore, with the real ninja.exe.

Wine cannot vouch for: how fast Windows starts processes (the times below are only compared with each other); semaphores
across sessions or users (`Global\` names).
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from programs import compile_c, program

from rekindle.build.governor.endpoint import JobServer
from rekindle.core import run

JOBS = 6
# Each job notes when it began and ended; how many overlap is what counts, not how long all took.
JOB = """#include <stdio.h>
#include <windows.h>
int main(int count, char **words) {
    unsigned long begun = GetTickCount();
    Sleep(700);
    FILE *note = fopen(words[1], "w");
    fprintf(note, "%lu %lu", begun, (unsigned long)GetTickCount());
    return fclose(note);
}
"""


def _build(folder: Path, server: JobServer) -> tuple[str, int]:
    compile_c(JOB, folder / "job.exe")
    rule = "rule job\n  command = job.exe $out\n"
    rule += "".join(f"build out{number}: job\n" for number in range(JOBS))
    (folder / "build.ninja").write_text(rule, encoding="utf-8")
    said = run.call([program("ninja")], cwd=folder, env=server.environment(os.environ), timeout=120)
    assert said.ok, said.out + said.err
    spans = []
    for number in range(JOBS):
        begun, ended = (folder / f"out{number}").read_text(encoding="ascii").split()
        spans.append((int(begun), int(ended)))
    return said.out + said.err, max(sum(a <= begun < b for a, b in spans) for begun, _ in spans)


def test_ninja_runs_as_many_jobs_as_there_are_tokens_and_one(tmp_path: Path) -> None:
    with JobServer(2) as server:
        said, together = _build(tmp_path, server)
    assert "Jobserver mode detected" in said
    assert together == 2


def test_without_tokens_there_is_one_at_a_time(tmp_path: Path) -> None:
    with JobServer(1) as server:
        assert _build(tmp_path, server)[1] == 1


def test_tokens_given_while_it_runs_are_used(tmp_path: Path) -> None:
    with JobServer(1, most=4) as server:

        def more() -> None:
            time.sleep(1)
            server.give()
            server.give()

        helper = threading.Thread(target=more)
        helper.start()
        together = _build(tmp_path, server)[1]
        helper.join()
    assert 1 < together <= 3
