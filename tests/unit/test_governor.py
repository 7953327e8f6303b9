"""The governor's parts one by one. With a real Ninja and a real limit on memory: tests/real/test_governor.py."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rekindle.build.configure.compiler_cache import through
from rekindle.build.configure.environment import Action, BuildEnvironment, VariableChange
from rekindle.build.governor import record
from rekindle.build.governor.memory import Compiling, Expectation, Watch, choose, kind_of, of_windows
from rekindle.build.governor.record import Compile, Shown, Standing
from rekindle.build.progress import watch, weights
from rekindle.build.progress.outputs import RunningProgram
from rekindle.core import lines
from rekindle.knowledge.builds.costs import compile_memory

MIB = 1024**2


def at_the_gate(*needs: int, alone: int | None = None) -> list[Compiling]:
    return [Compiling(number=n, need=need, arrived=10.0 + n, alone=n == alone) for n, need in enumerate(needs)]


def started(*needs: int, began: float = 1.0) -> list[Compiling]:
    return [Compiling(number=100 + n, need=need, began=began) for n, need in enumerate(needs)]


def test_as_many_start_as_there_are_jobs_when_memory_is_no_matter() -> None:
    choice = choose(at_the_gate(1, 1, 1, 1), started(1), jobs=3, room=100, capacity=100)
    assert choice.start == (0, 1)
    assert choice.short == ()


def test_a_small_one_passes_a_large_one_that_has_no_room() -> None:
    choice = choose(at_the_gate(800, 800, 50), started(800), jobs=4, room=200, capacity=1000)
    assert choice.start == (2,)
    assert choice.short == (0, 1)


def test_what_passes_never_keeps_the_large_one_out_for_good() -> None:
    """Once the first large one has ended there must be room for the next, whatever has passed it since."""
    waiting = at_the_gate(800, 150)
    running = [*started(800), Compiling(number=200, need=100, began=11.0)]
    choice = choose(waiting, running, jobs=4, room=200, capacity=1000)
    assert choice.start == (), "100 + 150 + 800 is more than there is"
    assert choose(at_the_gate(800, 90), running, jobs=4, room=200, capacity=1000).start == (1,)


def test_one_that_needs_more_than_there_is_runs_when_nothing_else_does() -> None:
    assert choose(at_the_gate(5000), started(10), jobs=4, room=900, capacity=1000).start == ()
    assert choose(at_the_gate(5000), [], jobs=4, room=900, capacity=1000).start == (0,)


def test_one_that_was_killed_runs_alone() -> None:
    waiting = at_the_gate(10, 10, 10, alone=1)
    assert choose(waiting, started(10), jobs=4, room=900, capacity=1000).start == (), "first what runs has to end"
    assert choose(waiting, [], jobs=4, room=900, capacity=1000).start == (1,)
    alone = [Compiling(number=9, need=10, alone=True)]
    assert choose(at_the_gate(10, 10), alone, jobs=4, room=900, capacity=1000).start == ()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("caffe2/CMakeFiles/torch_cuda.dir/__/aten/src/ATen/native/cuda/Sort.cu.o", ".cu"),
        ("CMakeFiles/x.dir/a.CPP.obj", ".cpp"),
        ("c10/CMakeFiles/c10.dir/no_ending.o", ""),
        ("lib/libtorch_cuda.so", "link"),
        ("", "link"),
    ],
)
def test_the_kind_of_a_file_is_told_by_its_object(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_what_was_measured_counts_before_any_guess() -> None:
    expectation = Expectation({"a.cu.o": 3000 * MIB})
    assert 3000 * MIB < expectation.of("a.cu.o") < 3600 * MIB
    assert expectation.of("b.cu.o") > expectation.of("b.cpp.o") > expectation.of("b.c.o")
    for number in range(20):
        expectation.learn(f"{number}.cpp.o", 100 * MIB)
    assert 100 * MIB <= expectation.of("other.cpp.o") < 130 * MIB, "its kind takes that much in this build"


def test_pytorchs_heavy_files_are_known_before_the_first_build_on_any_system() -> None:
    """`Indexing.cu` of 1.13.1 took 2 GB for one architecture, most files of its kind a quarter of that."""
    expectation = Expectation({}, shipped=compile_memory())
    name = "caffe2/CMakeFiles/torch_cuda.dir/__/aten/src/ATen/native/cuda/Indexing.cu"
    assert 2000 * MIB < expectation.of(f"{name}.o") == expectation.of(f"{name}.obj") < 2400 * MIB
    expectation.learn(f"{name}.o", 500 * MIB)
    assert expectation.of(f"{name}.o") < 600 * MIB, "what was measured here counts more"
    assert expectation.of("x/new.cu.o") == Expectation().of("x/new.cu.o")


def test_nothing_is_learned_from_a_compile_that_the_cache_answered() -> None:
    expectation = Expectation({"a.cu.o": 3000 * MIB}, cached=True)
    expectation.learn("a.cu.o", 12 * MIB)
    assert expectation.of("a.cu.o") >= 3000 * MIB
    assert expectation.measured == {}


def test_of_one_that_was_killed_more_is_expected_than_it_got() -> None:
    expectation = Expectation()
    expectation.learn("a.cpp.o", 1000 * MIB, killed=True)
    assert expectation.of("a.cpp.o") > 1200 * MIB


MEMINFO = "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\n"


def test_the_tightest_group_of_version_two_counts() -> None:
    files = {
        "/proc/meminfo": MEMINFO,
        "/proc/self/cgroup": "0::/user.slice/build\n",
        "/sys/fs/cgroup/user.slice/build/memory.max": "max\n",
        "/sys/fs/cgroup/user.slice/build/memory.current": "900000000\n",
        "/sys/fs/cgroup/user.slice/build/memory.events": "low 0\noom 3\noom_kill 2\n",
        "/sys/fs/cgroup/user.slice/memory.max": "2000000000\n",
        "/sys/fs/cgroup/user.slice/memory.current": "1500000000\n",
        "/sys/fs/cgroup/user.slice/memory.stat": "anon 700000000\ninactive_file 600000000\nactive_file 200000000\n",
    }
    found = Watch(files.get, windows=False).sample()
    assert found.total == 2_000_000_000
    assert found.available == 2_000_000_000 - (1_500_000_000 - 600_000_000 - 100_000_000)
    assert found.killed == 2


def test_a_group_of_version_one_counts() -> None:
    folder = "/sys/fs/cgroup/memory/docker/abc"
    files = {
        "/proc/meminfo": MEMINFO,
        "/proc/self/cgroup": "4:cpu,cpuacct:/\n3:memory:/docker/abc\n0::/\n",
        f"{folder}/memory.limit_in_bytes": "1073741824\n",
        f"{folder}/memory.usage_in_bytes": "1000000000\n",
        f"{folder}/memory.stat": "inactive_file 1\ntotal_inactive_file 100000000\ntotal_active_file 0\n",
        f"{folder}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": "5000000000\n",
    }
    found = Watch(files.get, windows=False).sample()
    assert (found.available, found.total, found.killed) == (173741824, 1073741824, 5)


def test_without_any_group_it_is_the_machine_and_unknown_stays_unknown() -> None:
    files = {"/proc/meminfo": MEMINFO, "/proc/vmstat": "pgfault 1\noom_kill 7\n"}
    found = Watch(files.get, windows=False).sample()
    assert (found.available, found.killed) == (20000000 * 1024, 7)
    empty = Watch(lambda path: None, windows=False).sample()
    assert (empty.available, empty.total, empty.killed) == (None, None, None)


def test_on_windows_what_can_be_committed_counts() -> None:
    said = {"total": 32_000, "available": 20_000, "commit_total": 40_000, "commit_free": 5_000}
    assert of_windows(said) == (5_000, 32_000)
    assert of_windows(None) is None


def test_a_record_is_one_line_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    one = Compile(object="b/x.cpp.o", start=1794722400.5, seconds=31.2, peak_kb=812044, code=0)
    path = tmp_path / "compiles.jsonl"
    for _ in range(3):
        lines.append(path, one, hint="", settled=False)
    whole = path.read_bytes()
    line = whole[: len(whole) // 3]
    assert whole == line * 3
    path.write_bytes(whole[: len(line) * 2 + 30])
    assert record.read(path) == [one, one]
    keys = set(json.loads(line))
    assert keys == {"object", "start", "seconds", "peak_kb", "code", "retried"}
    assert record.read(tmp_path / "none") == []


def test_peaks_are_kept_from_build_to_build(tmp_path: Path) -> None:
    path = tmp_path / "peaks.json"
    record.write_peaks(path, {"a.o": 5 * MIB, "b.o": 6 * MIB}, {"a.o": 7 * MIB})
    assert record.read_peaks(path) == {"a.o": 7 * MIB, "b.o": 6 * MIB}
    path.write_text("{", encoding="utf-8")
    assert record.read_peaks(path) == {}


def test_the_gate_stands_before_the_cache_and_before_the_linker() -> None:
    cached = VariableChange(name="CMAKE_CXX_COMPILER_LAUNCHER", action=Action.SET, value="/usr/bin/ccache")
    gated = through(BuildEnvironment(system="linux", changes=(cached,)), "/b/gate")
    assert gated.value("CMAKE_CXX_COMPILER_LAUNCHER") == "/b/gate;/usr/bin/ccache"
    assert gated.value("CMAKE_CUDA_COMPILER_LAUNCHER") == "/b/gate"
    assert gated.value("CMAKE_CXX_LINKER_LAUNCHER") == "/b/gate"
    windows = through(BuildEnvironment(system="windows", changes=()), "C:/b/gate.exe")
    assert windows.value("CMAKE_CXX_LINKER_LAUNCHER") is None


def test_a_wait_at_the_gate_is_no_compile_time(tmp_path: Path) -> None:
    """Ninja's log counts from when it started the gate."""
    log, compiles = tmp_path / ".ninja_log", tmp_path / "compiles.jsonl"
    tail = weights.LogTail(log, compiles)
    log.write_text("# ninja log v7\n0\t90000\t1\ta.cpp.o\tabc\n0\t500\t1\tlibx.a\tdef\n", encoding="ascii")
    one = Compile(object="a.cpp.o", start=1.0, seconds=30.0, peak_kb=1, code=0)
    lines.append(compiles, one, hint="", settled=False)
    assert tail.read() == {"a.cpp.o": 30.0, "libx.a": 0.5}


def test_what_waits_at_the_gate_is_not_shown_as_running() -> None:
    jobs = [RunningProgram(output=name, seconds=50.0, memory=1) for name in ("a.o", "b.o", "codegen")]
    shown = Shown(object="a.o", since=time.time() - 5, expected=1), Shown(object="b.o", since=time.time(), expected=1)
    standing = Standing(jobs=2, running=shown[:1], waiting=shown[1:], short=1, available=1, total=1)
    found = watch._governed(jobs, standing)
    assert [(job.output, round(job.seconds)) for job in found] == [("a.o", 5), ("codegen", 50)]
