"""The gate before a program, with a governor and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rekindle.build.configure.request import BuildRequest, Compiler
from rekindle.build.governor import governor as making
from rekindle.build.governor import record
from rekindle.build.governor.memory import Sample, Watch
from rekindle.build.governor.server import VARIABLE, Governor
from support.artefacts import unverified

MIB = 1024**2

if sys.platform == "win32":
    pytest.skip("UNVERIFIED: Windows has its own test, tests/windows/test_memory_gate.py", allow_module_level=True)


class Memory(Watch):
    """As much memory as the test says."""

    def __init__(self, available: int) -> None:
        self.available = self.total = available
        self.killed = 0

    def sample(self) -> Sample:
        return Sample(available=self.available, total=self.total, killed=self.killed)


def request_with(compiler: str) -> BuildRequest:
    made = Compiler(kind="gcc", cxx="g++", c=compiler, cuda_host="g++")
    return BuildRequest(source=".", system="linux", arch="x86_64", python=sys.executable, compiler=made)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("a folder")
    if not shutil.which("cc"):
        unverified("no C compiler is here")
    made = making.make_gate(folder, request_with("cc"), os.environ)
    assert made == str(folder / "gate")
    return made


def test_without_a_compiler_there_is_no_gate_and_nothing_in_its_place(tmp_path: Path) -> None:
    """The build goes on with a fixed number of compiles."""
    assert making.make_gate(tmp_path, request_with("no-such-compiler"), os.environ) is None
    assert not (tmp_path / "gate").exists() and not (tmp_path / "gate.id").exists()


def call(gate: str, *words: str, governor: Governor | None = None) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.run(
        [gate, *words],
        env=governor.environment(environ) if governor else environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )


def shell(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text, "-o", "x/a.cpp.o")


def test_code_and_output_are_the_compilers(gate: str, tmp_path: Path) -> None:
    said = "echo out; echo err >&2; exit 7"
    with Governor(2, compiles=tmp_path / "c.jsonl") as governor:
        for given in (None, governor):
            done = call(gate, *shell(said), governor=given)
            assert (done.returncode, done.stdout) == (7, "out\nerr\n")
    one = record.read(tmp_path / "c.jsonl")
    assert [(each.object, each.code, each.retried) for each in one] == [("x/a.cpp.o", 7, False)]
    assert one[0].peak_kb > 200 and abs(one[0].start - time.time()) < 60


def test_a_compiler_that_is_not_there_is_said(gate: str) -> None:
    with Governor(2) as governor:
        for given in (None, governor):
            done = call(gate, "no-such-compiler", governor=given)
            assert done.returncode == 127 and "no-such-compiler" in done.stdout


def test_what_was_said_before_the_end_is_written_down(gate: str, tmp_path: Path) -> None:
    """A gate that went well does not wait for an answer: it may be gone before it is heard."""
    for number in range(5):
        path = tmp_path / f"{number}.jsonl"
        with Governor(2, compiles=path) as governor:
            call(gate, *shell("exit 0"), governor=governor)
        assert len(record.read(path)) == 1


def test_a_signal_is_handed_on(gate: str) -> None:
    with Governor(2) as governor:
        assert call(gate, *shell("kill -TERM $$"), governor=governor).returncode == -15


def test_when_the_governor_has_gone_the_compiler_runs(gate: str) -> None:
    governor = Governor(2)
    governor.close()
    assert call(gate, *shell("echo well"), governor=governor).stdout == "well\n"


def test_when_the_governor_goes_while_one_waits_the_compiler_runs(gate: str) -> None:
    with Governor(2, watch=Memory(64 * MIB)) as governor:
        first = threading.Thread(target=call, args=(gate, *shell("sleep 1")), kwargs={"governor": governor})
        first.start()
        _until(lambda: len(governor.standing().running) == 1)
        second = threading.Thread(target=call, args=(gate, *shell("exit 0")), kwargs={"governor": governor})
        second.start()
        _until(lambda: len(governor.standing().waiting) == 1)
    second.join(timeout=120)
    assert not second.is_alive()
    first.join(timeout=120)


def test_two_that_do_not_fit_together_run_one_after_the_other(gate: str, tmp_path: Path) -> None:
    with Governor(2, watch=Memory(400 * MIB), compiles=tmp_path / "c.jsonl") as governor:
        both = [
            threading.Thread(target=call, args=(gate, *shell("sleep 0.4")), kwargs={"governor": governor})
            for _ in range(2)
        ]
        for each in both:
            each.start()
        for each in both:
            each.join()
        assert governor.use.waits == 1 and governor.use.waited > 0.1
    one, other = record.read(tmp_path / "c.jsonl")
    assert other.start >= one.start + one.seconds - 0.05


def test_one_that_was_killed_is_run_again_alone_and_only_its_last_words_are_shown(gate: str, tmp_path: Path) -> None:
    text = f"if test -e {tmp_path}/second; then echo well; else touch {tmp_path}/second; echo bad; kill -9 $$; fi"
    told: list[str] = []
    with Governor(2, compiles=tmp_path / "c.jsonl", tell=told.append) as governor:
        done = call(gate, *shell(text), governor=governor)
        assert governor.use.retries == 1 and governor.use.unfit == ()
    assert done.returncode == 0 and done.stdout.endswith("well\n")
    assert record.read(tmp_path / "c.jsonl")[0].retried
    assert "x/a.cpp.o: killed for memory" in told[0]


def test_one_that_is_killed_alone_too_is_reported_with_what_it_took_and_not_tried_again(gate: str) -> None:
    with Governor(2) as governor:
        done = call(gate, *shell("kill -9 $$"), governor=governor)
        assert done.returncode == -9 and "killed for memory, also alone: it needs more than" in done.stdout
        again = call(gate, *shell("echo must not run"), governor=governor)
        assert again.returncode == 1 and "must not run" not in again.stdout and "also alone" in again.stdout
        assert len(governor.use.unfit) == 1


def test_a_kill_that_the_driver_outlives_is_known_by_the_kernels_count(gate: str, tmp_path: Path) -> None:
    """cc1plus is killed, g++ ends with code 1."""
    memory = Memory(10_000 * MIB)
    with Governor(2, watch=memory) as governor:
        text = f"if test -e {tmp_path}/second; then exit 0; fi; touch {tmp_path}/second; sleep 0.5; exit 1"
        thread = threading.Timer(0.2, lambda: setattr(memory, "killed", 1))
        thread.start()
        assert call(gate, *shell(text), governor=governor).returncode == 0
        assert governor.use.retries == 1


def test_when_memory_runs_out_the_youngest_is_sent_back_to_wait(gate: str, tmp_path: Path) -> None:
    """Both are expected to fit, and then one takes more than it ever did: the kernel need not kill anything."""
    memory = Memory(3000 * MIB)
    with Governor(2, watch=memory, compiles=tmp_path / "c.jsonl") as governor:
        words = [("sh", "-c", "sleep 1.5 || exit 1", "-o", f"{name}.cpp.o") for name in ("old", "young")]
        both = [threading.Thread(target=call, args=(gate, *each), kwargs={"governor": governor}) for each in words]
        both[0].start()
        _until(lambda: len(governor.standing().running) == 1)
        both[1].start()
        _until(lambda: len(governor.standing().running) == 2)
        memory.available = 20 * MIB
        _until(lambda: governor.use.taken_back == 1)
        memory.available = 3000 * MIB
        for each in both:
            each.join()
        assert governor.use.retries == 0
    done = {each.object: each for each in record.read(tmp_path / "c.jsonl")}
    assert [each.code for each in done.values()] == [0, 0]
    assert done["young.cpp.o"].start > done["old.cpp.o"].start


def test_a_plain_error_is_not_tried_again(gate: str) -> None:
    with Governor(2) as governor:
        assert call(gate, *shell("exit 1"), governor=governor).returncode == 1
        assert governor.use.retries == 0


def test_the_gate_is_made_once(gate: str) -> None:
    folder = Path(gate).parent
    before = Path(gate).stat().st_mtime_ns
    making.make_gate(folder, request_with("cc"), os.environ)
    assert Path(gate).stat().st_mtime_ns == before


def _until(condition: object) -> None:
    limit = time.monotonic() + 120
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < limit
        time.sleep(0.02)
