r"""The gate before a compiler, with the real ninja.exe and job tokens by a named semaphore.

Wine cannot vouch for: how much memory a job held (Wine counts none; Windows does), cl as the gate's compiler (tcc
stands for it), the cost of starting one more process.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from programs import compile_c, program

from rekindle.build.configure.request import BuildRequest, Compiler
from rekindle.build.governor import governor as making
from rekindle.build.governor import record
from rekindle.build.governor.memory import Sample, Watch
from rekindle.build.governor.server import VARIABLE, Gate, Governor
from rekindle.core import run

MIB = 1024**2
FILES = 4
# Each notes when it began and ended, and what it was told. The first waits until another has come to the gate.
COMPILER = """#include <stdio.h>
#include <string.h>
#include <windows.h>
int main(int count, char **words) {
    unsigned long begun = GetTickCount();
    if (strcmp(words[1], "fail") == 0) { printf("out %s\\n", GetCommandLineA()); return 7; }
    for (int tries = 0; tries < 1200 && GetFileAttributesA("go") == INVALID_FILE_ATTRIBUTES; tries++) Sleep(50);
    Sleep(700);
    FILE *note = fopen(words[2], "w");
    fprintf(note, "%lu %lu", begun, (unsigned long)GetTickCount());
    return fclose(note);
}
"""


class Memory(Watch):
    """As much memory as the test says."""

    def __init__(self, available: int) -> None:
        self.available = available

    def sample(self) -> Sample:
        return Sample(available=self.available, total=self.available)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> str:
    tcc = str(program("tcc"))
    compiler = Compiler(kind="tcc", cxx=tcc, c=tcc, cuda_host=tcc)
    request = BuildRequest(source=".", system="windows", arch="x86_64", python=sys.executable, compiler=compiler)
    made = making.make_gate(tmp_path_factory.mktemp("a gate (x86)"), request, os.environ)
    assert made is not None
    return made


def when_two_have_come(governor: Governor, go: Path) -> None:
    """However long a slow machine takes to start them."""
    for _ in range(1200):
        standing = governor.standing()
        if len(standing.running) + len(standing.waiting) >= 2:
            break
        time.sleep(0.05)
    go.touch()


def together(folder: Path, gate: str, governor: Governor) -> int:
    """How many ran at the same time, at most."""
    compile_c(COMPILER, folder / "cc.exe")
    rule = f'rule cxx\n  command = "{gate}" "{folder / "cc.exe"}" -o $out\n'
    rule += "".join(f"build {number}.cpp.obj: cxx\n" for number in range(FILES))
    (folder / "build.ninja").write_text(rule, encoding="utf-8")
    with ThreadPoolExecutor(1) as beside:
        beside.submit(when_two_have_come, governor, folder / "go")
        said = run.call([program("ninja")], cwd=folder, env=governor.environment(os.environ), timeout=180)
    assert said.ok, said.out + said.err
    assert "Jobserver mode detected" in said.out + said.err
    spans = []
    for number in range(FILES):
        begun, ended = (folder / f"{number}.cpp.obj").read_text(encoding="ascii").split()
        spans.append((int(begun), int(ended)))
    return max(sum(a <= begun < b for a, b in spans) for begun, _ in spans)


def test_with_memory_for_one_they_run_one_after_the_other(gate: str, tmp_path: Path) -> None:
    with Governor(2, watch=Memory(400 * MIB), compiles=tmp_path / "compiles.jsonl") as governor:
        assert together(tmp_path, gate, governor) == 1
    assert governor.use.waits > 0
    done = record.read(tmp_path / "compiles.jsonl")
    assert {each.object for each in done} == {f"{number}.cpp.obj" for number in range(FILES)}
    assert all(each.code == 0 and each.seconds > 0.6 for each in done)


def test_with_memory_for_all_there_are_as_many_as_jobs_although_ninja_has_more_tokens(
    gate: str, tmp_path: Path
) -> None:
    with Governor(2, watch=Memory(60_000 * MIB)) as governor:
        assert together(tmp_path, gate, governor) == 2
    assert governor.use.waits == 0


def test_code_output_and_words_are_the_compilers(gate: str, tmp_path: Path) -> None:
    words = ["fail", 'a "quoted" word', "C:\\x y\\", "&|^%", "-o", "x.obj"]
    compiler = compile_c(COMPILER, tmp_path / "cc.exe")
    plain = run.call([compiler, *words], timeout=60)
    assert plain.code == 7
    with Governor(2) as governor:
        for environ in (governor.environment(os.environ), {**os.environ}, {**os.environ, VARIABLE: "1 gone"}):
            said = run.call([gate, compiler, *words], env=environ, timeout=60)
            assert (said.code, said.out) == (7, plain.out)


def test_a_stranger_without_the_secret_is_not_heard(gate: str, tmp_path: Path) -> None:
    compiler = compile_c(COMPILER, tmp_path / "cc.exe")
    with Governor(2, compiles=tmp_path / "compiles.jsonl") as governor:
        port = governor.environment({})[VARIABLE].split()[0]
        environ = {**os.environ, VARIABLE: f"{port} wrong"}
        assert run.call([gate, compiler, "fail"], env=environ, timeout=60).code == 7
    assert record.read(tmp_path / "compiles.jsonl") == []


def test_without_memory_a_failed_compile_counts_as_killed_and_memory_is_looked_at_often() -> None:
    """Windows kills nothing: a compiler that gets no memory ends by itself, so the least free memory is kept."""
    ours, theirs = socket.socketpair()
    with ours, theirs, Governor(2, watch=Memory(60_000 * MIB), tokens=False) as governor:
        assert governor._patience() == 2.0
        seen = Gate(number=1, need=MIB, connection=ours, lowest=100 * MIB)
        governor._gates[1] = seen
        often = governor._patience()
        del governor._gates[1]
        assert often == 0.5
        assert governor._killed_since(seen)
        assert not governor._killed_since(Gate(number=2, need=MIB, connection=ours, lowest=30_000 * MIB))


def test_without_a_compiler_there_is_no_gate(tmp_path: Path) -> None:
    nothing = str(tmp_path / "cl.exe")
    compiler = Compiler(kind="cl", cxx=nothing, c=nothing, cuda_host=nothing)
    request = BuildRequest(source=".", system="windows", arch="x86_64", python=sys.executable, compiler=compiler)
    assert making.make_gate(tmp_path, request, os.environ) is None


def test_the_gate_runs_the_compiler_with_and_without_a_governor(gate: str, tmp_path: Path) -> None:
    compiler = compile_c(COMPILER, tmp_path / "cc.exe")
    words = [gate, compiler, "fail", "-o", "x.obj"]
    with Governor(2, compiles=tmp_path / "compiles.jsonl", tokens=False) as governor:
        for environ in (governor.environment(os.environ), {**os.environ}):
            said = run.call(words, env=environ, timeout=120)
            assert (said.code, said.out[:4]) == (7, "out "), said.err
    assert [each.object for each in record.read(tmp_path / "compiles.jsonl")] == ["x.obj"]
