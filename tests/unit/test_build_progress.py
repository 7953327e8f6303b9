"""How far a build is, and how long the rest takes: what a person sees while it runs."""

from __future__ import annotations

import importlib.util
import io
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from rekindle.build.governor.record import Shown, Standing
from rekindle.build.progress import outputs, watch, weights
from rekindle.build.progress.outputs import RunningProgram, Watcher
from rekindle.build.progress.watch import CompileStep, Now, Progress
from rekindle.build.progress.weights import Estimator, TimeLeft, Times, Weight, Weights
from rekindle.knowledge.builds.costs import compile_times
from rekindle.knowledge.builds.sweeps import file_seconds
from support.artefacts import unverified

GIB = 2**30
TENSOR = "caffe2/CMakeFiles/torch_cpu.dir/__/aten/src/ATen/core/Tensor.cpp.o"


@pytest.mark.parametrize(
    ("name", "kind", "source", "target"),
    [
        (TENSOR, "cxx", "aten/src/ATen/core/Tensor.cpp", "torch_cpu"),
        (r"caffe2\CMakeFiles\torch_cuda.dir\__\aten\src\x\Sort.cu.obj", "cuda", "aten/src/x/Sort.cu", "torch_cuda"),
        ("CMakeFiles/uv.dir/src/unix/tcp.c.o", "c", "src/unix/tcp.c", "uv"),
        ("CMakeFiles/libprotobuf.dir/__/src/google/any.cc.o", "cxx", "src/google/any.cc", "libprotobuf"),
        ("lib/libtorch_cpu.so", "link", "lib/libtorch_cpu.so", ""),
        ("bin/c10.dll", "link", "bin/c10.dll", ""),
        ("aten/src/ATen/Functions.h", "other", "aten/src/ATen/Functions.h", ""),
    ],
)
def test_an_output_is_known_by_its_source(name: str, kind: str, source: str, target: str) -> None:
    found = outputs.read(name)
    assert (found.kind, found.source, found.target) == (kind, source, target)


def objects(count: int, folder: str = "src") -> list[str]:
    return [f"CMakeFiles/t.dir/{folder}/f{number}.cpp.o" for number in range(count)]


def test_a_file_of_another_build_is_found_by_the_end_of_its_path() -> None:
    """Protobuf built alone and inside PyTorch: other folders, the same files."""
    alone = Times(name="alone", seconds={"libprotobuf:src/google/protobuf/any.cc": 4.0, "libprotobuf:src/x.cc": 1.0})
    inside = "third_party/protobuf/cmake/CMakeFiles/libprotobuf.dir/__/src/google/protobuf/any.cc.o"
    weight = Weights([alone]).of([inside])[inside]
    assert weight.known and weight.seconds == pytest.approx(4.0)


def test_a_name_that_many_folders_have_is_not_taken_for_another_file() -> None:
    known = Times(name="k", seconds={"a:one/utils.cpp": 100.0, "b:two/utils.cpp": 1.0})
    name = "CMakeFiles/c.dir/three/utils.cpp.o"
    assert not Weights([known]).of([name])[name].known


def test_builds_of_different_machines_are_brought_to_one_scale() -> None:
    """The second machine is ten times slower; what only it has timed must not look ten times as heavy."""
    names = objects(20)
    fast = {outputs.read(name).key: float(number + 1) for number, name in enumerate(names)}
    slow = {key: seconds * 10 for key, seconds in fast.items()} | {"t:src/new.cpp": 50.0}
    new = "CMakeFiles/t.dir/src/new.cpp.o"
    found = Weights([Times(name="fast", seconds=fast), Times(name="slow", seconds=slow)]).of([*names, new])
    heaviest = found[names[-1]].seconds
    assert found[new].seconds / heaviest == pytest.approx(5.0 / 20.0)


def test_the_same_build_before_counts_alone() -> None:
    """Without optimisation all files weigh alike; a build that was timed as it is must not be averaged with that."""
    names = objects(20)
    before = {outputs.read(name).key: float(number + 1) for number, name in enumerate(names)}
    flat = Times(name="unoptimised", seconds=dict.fromkeys(before, 1.0))
    found = Weights([Times(name="before", seconds=before), flat]).of(names)
    assert found[names[-1]].seconds / found[names[0]].seconds == pytest.approx(20.0)
    few = Times(name="another", seconds=dict(list(before.items())[:10]))
    assert Weights([few, flat]).of(names)[names[9]].seconds < 10.0


def test_a_file_that_nobody_timed_weighs_what_its_folder_weighs() -> None:
    known = Times(
        name="k", seconds={f"t:heavy/f{i}.cpp": 30.0 for i in range(5)} | {f"t:light/f{i}.cpp": 1.0 for i in range(5)}
    )
    names = (
        objects(5, "heavy")
        + objects(5, "light")
        + ["CMakeFiles/t.dir/heavy/new.cpp.o", "CMakeFiles/t.dir/light/new.cpp.o"]
    )
    found = Weights([known]).of(names)
    assert not found[names[-1]].known
    assert found[names[-2]].seconds == pytest.approx(30.0) and found[names[-1]].seconds == pytest.approx(1.0)


def test_the_shipped_profile_is_a_real_builds() -> None:
    builds = {build.id: build.seconds for build in compile_times()}
    real = builds["pytorch-1.13.1-cpu-x86_64"]
    assert len(real) > 1000
    assert real["torch_cpu:aten/src/ATen/core/Tensor.cpp"] == pytest.approx(4.6, abs=0.1)


def played(weights: dict[str, Weight], real: dict[str, float], jobs: int) -> list[tuple[float, float, float]]:
    """A build in which every file takes `real` seconds: (share of time, said, true) after each file."""
    free = [0.0] * jobs
    spans = {}
    for name in weights:
        start = min(free)
        free[free.index(start)] = start + real[name]
        spans[name] = (start, start + real[name])
    end = max(free)
    estimator = Estimator(weights, jobs=jobs)
    said = []
    for name, (start, stop) in sorted(spans.items(), key=lambda item: item[1][1]):
        estimator.finished(name, stop - start, stop)
        ages = {other: stop - begun for other, (begun, over) in spans.items() if begun < stop < over}
        said.append((stop / end, estimator.remaining(stop, ages).seconds, end - stop))
    return said


def test_a_machine_three_times_slower_is_noticed_within_a_tenth_of_the_build() -> None:
    names = objects(200)
    weigh = random.Random(7)
    base = {name: weigh.lognormvariate(1.5, 1.0) for name in names}
    weights = {name: Weight(output=outputs.read(name), seconds=base[name], known=True) for name in names}
    slow = played(weights, {name: 3 * seconds for name, seconds in base.items()}, jobs=4)
    errors = [abs(said - true) / true for share, said, true in slow if 0.1 < share < 0.9]
    assert statistics.median(errors) < 0.05


def test_what_was_made_in_an_earlier_run_is_not_counted_again() -> None:
    """A resumed build lists only what is left: the estimate is for that."""
    names = objects(100)
    weights = {name: Weight(output=outputs.read(name), seconds=10.0, known=True) for name in names[90:]}
    assert Estimator(weights, jobs=2).remaining(0.0).seconds == pytest.approx(50.0)


def test_one_heavy_file_at_the_end_is_not_spread_over_all_jobs() -> None:
    names = objects(9)
    weights = {name: Weight(output=outputs.read(name), seconds=10.0, known=True) for name in names[:8]}
    weights[names[8]] = Weight(output=outputs.read(names[8]), seconds=300.0, known=True)
    assert Estimator(weights, jobs=8).remaining(0.0).seconds >= 300


def test_a_source_that_is_compiled_twice_tells_how_long_it_takes_the_second_time() -> None:
    """A shared and a static library of the same sources, one of them far heavier than anybody thought."""
    names = [f"CMakeFiles/{target}.dir/src/f{number}.c.o" for target in ("shared", "static") for number in range(50)]
    weights = {name: Weight(output=outputs.read(name), seconds=1.0, known=True) for name in names}
    estimator = Estimator(weights, jobs=1)
    for at, name in enumerate(names[:49], 1):
        estimator.finished(name, 1.0, float(at))
    before = estimator.remaining(49.0).seconds
    estimator.finished(names[49], 4.0, 53.0)
    assert before == pytest.approx(51.0)
    assert estimator.remaining(53.0).seconds == pytest.approx(50 - 1 + 2, rel=0.08)


def test_files_that_are_long_overdue_stretch_the_estimate_before_any_is_finished() -> None:
    names = objects(20)
    weights = {name: Weight(output=outputs.read(name), seconds=5.0, known=True) for name in names}
    estimator = Estimator(weights, jobs=2)
    assert estimator.remaining(100.0, {names[0]: 100.0, names[1]: 100.0}).seconds > 500


def test_fewer_files_than_listed_and_more_than_listed() -> None:
    names = objects(10)
    weights = {name: Weight(output=outputs.read(name), seconds=10.0, known=True) for name in names}
    estimator = Estimator(weights, jobs=1)
    assert estimator.remaining(0.0, fewer=5).seconds == pytest.approx(50.0)
    assert estimator.remaining(0.0, unlisted=10).seconds == pytest.approx(200.0)


def test_what_nobody_announced_takes_what_such_outputs_took_so_far() -> None:
    """Ninja had to renew its rules first, and its dry run listed nothing of what followed."""
    estimator = Estimator({}, jobs=2)
    for number in range(1, 11):
        estimator.finished(f"f{number}.o", 8.0, number * 4.0)
    assert estimator.remaining(40.0, unlisted=90).seconds == pytest.approx(360.0, rel=0.1)


@pytest.mark.parametrize(
    ("line", "done", "total", "name"),
    [
        ("[1/4] Building CXX object CMakeFiles/x.dir/a.cpp.o", 1, 4, "CMakeFiles/x.dir/a.cpp.o"),
        ("[331/1598] Linking CXX shared library lib/libc10.so", 331, 1598, "lib/libc10.so"),
        (
            "[2/9] Building CUDA object caffe2/CMakeFiles/torch_cuda.dir/x.cu.o",
            2,
            9,
            "caffe2/CMakeFiles/torch_cuda.dir/x.cu.o",
        ),
        ("[0/1] Re-running CMake...", 0, 1, "Re-running CMake..."),
    ],
)
def test_what_ninjas_lines_say(line: str, done: int, total: int, name: str) -> None:
    found = outputs.read_line(line)
    assert found is not None and (found.done, found.total, found.name) == (done, total, name)


@pytest.mark.parametrize("line", ["", "[", "[1/", "a.cpp:1:1: error: [1/2] no", "[x/y] z", "[99999999/1] z"])
def test_other_lines_are_no_count(line: str) -> None:
    assert outputs.read_line(line) is None


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("/usr/bin/c++ -O3 -DX -o CMakeFiles/x.dir/a.cpp.o -c /src/a.cpp", "CMakeFiles/x.dir/a.cpp.o"),
        ("nvcc -Xcompiler -O2 -x cu -c a.cu -o x.dir/a.cu.o", "x.dir/a.cu.o"),
        (r"cl.exe /nologo /TP /O2 /FoCMakeFiles\x.dir\a.cpp.obj /c a.cpp", "CMakeFiles/x.dir/a.cpp.obj"),
        (r"cl.exe @CMakeFiles\x.dir\a.cpp.obj.rsp", "CMakeFiles/x.dir/a.cpp.obj"),
        ("link.exe /OUT:bin\\c10.dll a.obj", "bin/c10.dll"),
        ("python gen.py", None),
    ],
)
def test_a_command_says_what_it_makes(command: str, output: str | None) -> None:
    assert outputs.output_of(command) == output


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands for ninja")
def test_what_is_running_is_read_off_the_processes(tmp_path: Path) -> None:
    """A program called ninja with two children, each with a child of its own that holds memory."""
    hold = "x = bytearray(40 * 2**20); import time; time.sleep(600)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    fake = tmp_path / "ninja"
    fake.symlink_to(sys.executable)
    code = (
        "import subprocess, sys\n"
        "for n in (1, 2):\n"
        f"    subprocess.Popen([{sys.executable!r}, '-c', {child!r}, '-o', f'CMakeFiles/t.dir/f{{n}}.cpp.o'])\n"
        "import time; time.sleep(600)"
    )
    env = {**os.environ, "PYTHONHOME": sys.base_prefix}
    ninja = subprocess.Popen([str(fake), "-c", code], start_new_session=True, env=env)
    try:
        watcher = Watcher(ninja.pid)
        limit = time.monotonic() + 300
        jobs: list[RunningProgram] = []
        while time.monotonic() < limit and not (len(jobs) == 2 and all((job.memory or 0) > 40 * 2**20 for job in jobs)):
            time.sleep(0.1)
            jobs = watcher.look()
        assert {job.output for job in jobs} == {"CMakeFiles/t.dir/f1.cpp.o", "CMakeFiles/t.dir/f2.cpp.o"}
        assert all(job.memory and job.memory > 40 * 2**20 for job in jobs), "with all that the compiler started"
    finally:
        os.killpg(ninja.pid, 9)
        ninja.wait()
    assert watcher.look() == []


def test_the_jobs_of_an_inner_ninja_count_and_not_those_of_the_one_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = {
        10: (1, "pip"),
        20: (10, "ninja"),
        30: (20, "cmake"),
        40: (30, "ninja.exe"),
        50: (40, "c++"),
        60: (20, "c++"),
    }

    class Fake:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def children(self, recursive: bool) -> list[Fake]:
            return [Fake(pid) for pid in tree if pid != self.pid]

        def name(self) -> str:
            return tree[self.pid][1]

        def ppid(self) -> int:
            return tree[self.pid][0]

        def create_time(self) -> float:
            return float(self.pid)

        def cmdline(self) -> list[str]:
            return [self.name(), "-o", f"{self.pid}.o"]

    monkeypatch.setattr("psutil.Process", Fake)
    monkeypatch.setattr(outputs, "held_by", lambda pid: None)
    assert [job.output for job in Watcher(10).look()] == ["50.o"]
    del tree[40]
    assert [job.output for job in Watcher(10).look()] == ["30.o", "60.o"]


def moment(**values: object) -> Now:
    jobs = (
        RunningProgram(output=TENSOR, seconds=242.0, memory=3 * GIB),
        RunningProgram(output="lib/libtorch_cpu.so", seconds=41.0, memory=GIB // 2),
    )
    known: dict[str, object] = {
        "step": "compile", "number": 7, "of": 11, "seconds": 2400.0, "done": 331, "total": 1598, "running": jobs,
        "estimate": TimeLeft(seconds=6720.0, share=0.25, known=0.9), "memory_free": 11 * GIB, "disk_free": 41 * GIB,
        "jobs": 4, "waiting": 1,
    }  # fmt: skip
    return Now(**{**known, **values})  # type: ignore[arg-type]


def test_the_log_says_where_it_is_and_what_takes_long() -> None:
    jobs = "2 of 4 running, 1 waiting for memory"
    assert watch.log_lines(moment(), "06:12:03") == [
        f"06:12:03  compile  331/1598  about 1 h 52 min left  {jobs}  11.0 GiB memory and 41.0 GiB disk free",
        "          still compiling aten/src/ATen/core/Tensor.cpp, 4 min, 3.0 GiB",
    ]


def test_a_step_without_counts_says_how_long_it_has_been_at_it() -> None:
    lines = watch.log_lines(
        moment(step="configure", total=0, done=0, running=(), waiting=0, estimate=None, last_line="-- Found x"),
        "06:12:03",
    )
    assert lines == ["06:12:03  configure  for 40 min", "          -- Found x"]


def test_an_estimate_without_weights_is_called_rough() -> None:
    rough = moment(estimate=TimeLeft(seconds=600.0, share=0.2, known=0.1))
    assert "roughly 10 min left" in watch.log_lines(rough, "")[0]


@pytest.mark.parametrize("width", [20, 33, 60, 80, 200])
def test_the_view_fits_any_terminal_and_is_ascii(width: int) -> None:
    lines = watch.live_lines(moment(), width, 24)
    assert max(map(len, lines)) <= width
    assert "\n".join(lines).isascii()


def test_the_view_shows_files_with_age_and_memory_and_what_is_left() -> None:
    text = "\n".join(watch.live_lines(moment(), 80))
    facts = "2 of 4 running, 1 waiting for memory, 11.0 GiB memory and 41.0 GiB disk free"
    files = "4 min|3.0 GiB|aten/src/ATen/core/Tensor.cpp|41 s|512 MiB"
    for words in f"331/1598 files|25%|40 min gone|about 1 h 52 min left|{facts}|{files}".split("|"):
        assert words in text, words


def test_many_files_at_once_do_not_fill_the_screen() -> None:
    jobs = tuple(RunningProgram(output=name, seconds=1.0, memory=GIB) for name in objects(64))
    lines = watch.live_lines(moment(running=jobs), 80, 12)
    assert len(lines) <= 12 and "more" in lines[-1]


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "live"),
    [
        (Tty(), {"TERM": "xterm"}, True),
        (Tty(), {"TERM": "dumb"}, False),
        (Tty(), {"CI": "true"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_a_view_that_redraws_only_where_it_can(stream: io.StringIO, environ: dict[str, str], live: bool) -> None:
    assert (watch.terminal(stream, environ) is not None) is live


def test_the_live_view_is_drawn_and_wiped_away() -> None:
    stream = Tty()
    live = watch.terminal(stream, {"TERM": "xterm"})
    assert live is not None
    live.show(moment())
    live.show(moment(done=332))
    live.close()
    assert "332/1598 files" in stream.getvalue()


def counts(lines: Sequence[str], listed: int = 0) -> list[tuple[int, int]]:
    """What is shown after each line of Ninja's."""
    progress = Progress(lambda line: None)
    progress.begin("compile", 7, 11)
    state = progress._state
    assert state is not None
    state.listed = listed
    shown = []
    for line in lines:
        progress.line(line)
        now = progress._now(state)
        shown.append((now.done, now.total))
    progress.end()
    return shown


def test_a_total_that_was_shown_neither_shrinks_nor_jumps() -> None:
    """2,031 files listed, then `1/4` of the rules that Ninja renews, then 2,075; a second run makes the rest."""
    lines = ["[1/4] Re-running CMake...", "[4/4] x", "[1/2075] a.o", "[900/2075] b.o", "[1/1176] c.o", "[3/5] d.o"]
    shown = counts(lines, listed=2031)
    assert shown == [(0, 0), (0, 0), (1, 2075), (900, 2075), (900, 2075), (900, 2075)]
    assert counts(["[1/4] Re-running CMake...", "[1/1253] a.o"])[-1] == (1, 1253)


def test_before_a_tenth_of_the_work_a_range_is_told() -> None:
    early = TimeLeft(seconds=3600.0, known=1.0, share=0.09)
    assert "  30 min to 2 h 00 min left  " in watch.log_lines(moment(estimate=early), "")[0]
    assert (
        "  about 1 h 00 min left" in watch.log_lines(moment(estimate=msgspec.structs.replace(early, share=0.1)), "")[0]
    )


def test_a_program_that_makes_no_known_file_is_not_called_a_compile() -> None:
    shell = RunningProgram(seconds=90.0, memory=None, program="sh", output=None)
    assert "still running sh, " in "\n".join(watch.log_lines(moment(running=(shell,)), ""))


def test_a_silent_program_is_still_heard_of() -> None:
    said: list[str] = []
    progress = Progress(said.append, every=0.5)
    progress.begin("configure", 5, 11)
    progress.line("-- Performing Test X")
    limit = time.monotonic() + 120
    while len(said) < 2 and time.monotonic() < limit:
        time.sleep(0.05)
    progress.end()
    assert "configure" in said[0] and "Performing Test X" in said[1]
    count = len(said)
    time.sleep(1.3)
    assert len(said) == count, "after the end nothing more is said"


LOG = "# ninja log v7\n0\t2500\t0\tCMakeFiles/t.dir/a.cpp.o\tabc\n"


def test_the_log_of_a_running_build_tells_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / ".ninja_log"
    path.write_text(LOG, encoding="utf-8")
    tail = weights.LogTail(path)
    assert tail.read() == {}
    with path.open("a", encoding="utf-8") as stream:
        stream.write("0\t4000\t0\tCMakeFiles/t.dir/b.cpp.o\tdef\n0\t7000\t0\tCMakeFi")
    assert tail.read() == {"CMakeFiles/t.dir/b.cpp.o": 4.0}, "half a line waits for its end"
    with path.open("a", encoding="utf-8") as stream:
        stream.write("les/t.dir/c.cpp.o\tdef\n")
    assert tail.read()["CMakeFiles/t.dir/c.cpp.o"] == 7.0
    path.write_text(LOG + "0\t9000\t0\td.o\tdef\n", encoding="utf-8")
    assert tail.read()["d.o"] == 9.0, "Ninja has rewritten its log, shorter"


def test_what_a_build_took_is_kept_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path / "cache"))
    log = tmp_path / ".ninja_log"
    rows = [f"0\t{1000 * (number + 1)}\t0\t{name}\tx" for number, name in enumerate(objects(8))]
    log.write_text("\n".join(["# ninja log v7", *rows, "0\t9\t0\tgen/x.h\ty", ""]), encoding="utf-8")
    weights.keep(log, "spark-1.0-abc")
    first = weights.builds("spark-1.0-abc")[0]
    assert first.name == "spark-1.0-abc" and first.seconds["t:src/f7.cpp"] == 8.0
    assert "gen/x.h" not in first.seconds
    found = Weights(weights.builds("another")).of(objects(8))
    assert all(weight.known for weight in found.values())


def test_a_broken_file_of_times_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path))
    (tmp_path / "times").mkdir()
    (tmp_path / "times" / "x.json").write_bytes(b"{\xff")
    shipped = [build.id for build in compile_times()] + [f"sweep of {torch}" for torch in file_seconds()]
    assert [build.name for build in weights.builds("x")] == shipped
    weights.keep(tmp_path / "no-such-log", "x")


def test_a_command_that_names_itself_by_a_sentence_is_known_by_its_output(tmp_path: Path) -> None:
    rules = (
        "build nccl-stamp/nccl-build | nccl/libnccl.a: CUSTOM_COMMAND nccl-stamp/nccl-configure\n"
        "  COMMAND = make\n  DESC = Performing build step for 'nccl_external'\n  restat = 1\n\n"
        "build a.o: CXX_COMPILER__t a.cpp\n  FLAGS = -O2\n\n"
        "build C$:/x/gen$ it.h: CUSTOM_COMMAND\n  DESC = Generating it\n"
    )
    (tmp_path / "build.ninja").write_text(rules, encoding="utf-8")
    assert outputs.described(tmp_path) == {
        "Performing build step for 'nccl_external'": "nccl-stamp/nccl-build",
        "Generating it": "C:/x/gen it.h",
    }
    assert outputs.described(tmp_path / "nowhere") == {}


def test_the_list_is_whole_even_when_cmake_would_be_run_again_first(tmp_path: Path) -> None:
    """A dry run ends at `Re-running CMake...`; an hour of work was once announced as five seconds."""
    ninja = shutil.which("ninja")
    if ninja is None:
        unverified("ninja is not on PATH")
    (tmp_path / "build.ninja").write_text(
        "rule RERUN_CMAKE\n  command = true\n  description = Re-running CMake...\n  generator = 1\n"
        "rule cc\n  command = cc -c a.c -o $out\n  description = Building C object $out\n"
        "build build.ninja: RERUN_CMAKE CMakeLists.txt\n"
        "build a.c.o: cc\nbuild b.c.o: cc\nbuild c.c.o: cc\nbuild all: phony a.c.o b.c.o\ndefault all\n",
        encoding="utf-8",
    )
    os.utime(tmp_path / "build.ninja", (1, 1))
    (tmp_path / "CMakeLists.txt").write_text("", encoding="utf-8")
    listed = outputs.listed(ninja, tmp_path, ("all",), dict(os.environ))
    assert listed == ("Re-running CMake...", "a.c.o", "b.c.o")


def test_only_what_waits_for_memory_is_said_to(tmp_path: Path) -> None:
    """The gate keeps a few compiles at hand that wait for their turn, not for memory."""
    shown = tuple(Shown(object=f"{n}.o", since=0.0, expected=1) for n in range(4))
    progress = Progress(lambda line: None)
    progress.standing = lambda: Standing(jobs=1, running=shown[:1], waiting=shown[1:], short=1, available=1, total=1)
    progress.begin("compile", 7, 11)
    assert progress._state is not None
    assert progress._now(progress._state).waiting == 1
    progress.end()


def test_no_time_is_told_when_most_of_the_rest_was_never_listed(tmp_path: Path) -> None:
    progress = Progress(lambda line: None)
    progress.begin("compile", 7, 11)
    state = progress._state
    assert state is not None
    state.compiles(
        CompileStep(name="x", ninja="ninja", build=tmp_path, source=tmp_path, targets=(), environ={}, jobs=2),
        Weights([]).of(["a.c.o"]),
        {},
    )
    progress.line("[1/447] Building C object z.c.o")
    assert progress._now(state).estimate is None
    progress.end()


@pytest.mark.long
def test_on_recorded_builds_the_time_left_is_within_an_eighth_and_twice_as_good_as_counting() -> None:
    """The steady half of `benchmarks/eta.py`: real builds of six projects, weights from other builds only."""
    place = Path(__file__).resolve().parents[2] / "benchmarks" / "eta.py"
    spec = importlib.util.spec_from_file_location("eta_benchmark", place)
    assert spec and spec.loader
    benchmark = importlib.util.module_from_spec(spec)
    sys.modules["eta_benchmark"] = benchmark
    spec.loader.exec_module(benchmark)
    builds = [build for path in sorted(benchmark.DATA.glob("*.csv.xz")) for build in benchmark.read(path)]
    steady = [build for build in builds if build.kind == "steady"]
    errors = [benchmark.measured(build, benchmark.weights_for(build, builds)) for build in steady]
    weighed = statistics.median(error for each in errors for error in each.weights)
    counted = statistics.median(error for each in errors for error in each.counting)
    assert len(steady) >= 12
    assert weighed <= 0.12 and weighed * 2 <= counted


def test_generators_beside_the_compiles_do_not_make_three_of_one() -> None:
    assert "  2 running, " in watch.log_lines(moment(jobs=1), "")[0]
    assert "2 of 1 running" not in "\n".join(watch.live_lines(moment(jobs=1), 80))
