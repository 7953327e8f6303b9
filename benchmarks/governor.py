"""What the governor is worth: a mixed build under a limit on memory, and small files without one. Prints the table.

    python benchmarks/governor.py [--rounds N] [--part mixed|small] [--ninja PATH] [--first]

Mixed: 8 C++ files that take 450 MB each and 56 that take little, under a control group in which two of the large ones
together are killed. Small: 40 C++ files that include one header, where only the cost of the gate counts. What is
compared is run in turns in one go, so that whatever else the machine does falls on all of it. The processor time of all
that a build starts, the governor's own included, is printed beside the clock's: it hardly depends on what else runs.

On a machine that many use, Linux gives every session the same share, however many jobs it runs, and two jobs are no
faster than one. `--first` asks to be served first while something is measured, and pauses in between.

Needs root for the control group (of either version), g++ and a Ninja from 1.13.2 on (`pip install ninja`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parents[1] / "tests")]

from rekindle.build.configure.request import BuildRequest, Compiler  # noqa: E402
from rekindle.build.governor import governor as making  # noqa: E402
from rekindle.build.governor import record  # noqa: E402
from rekindle.build.governor.memory import Expectation  # noqa: E402
from rekindle.build.governor.server import Governor  # noqa: E402
from support.groups import MemoryGroup, memory_group  # noqa: E402

HEAVY, LIGHT, SMALL = 8, 56, 40
LIMIT = 750 * 1024**2
JOBS = 2
FIRST: list[bool] = []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--part", choices=("mixed", "small"))
    parser.add_argument("--ninja", default=shutil.which("ninja"))
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first:
        os.setsid()
        FIRST.append(True)
    if options.one:
        return one(options.one[0], Path(options.one[1]), options.ninja)
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as folder:
        well = True
        if options.part != "small":
            well &= mixed(Path(folder, "mixed"), options.ninja, options.rounds)
        if options.part != "mixed":
            well &= small(Path(folder, "small"), options.ninja, options.rounds)
    print("PASS" if well else "FAIL")
    return 0 if well else 1


def mixed(folder: Path, ninja: str, rounds: int) -> bool:
    made = memory_group("rekindle-bench", LIMIT)
    if isinstance(made, str):
        print(f"UNVERIFIED: {made}")
        return False
    write_mixed(folder)
    kinds: dict[str, tuple[str, MemoryGroup | None]] = {
        "-j2, no limit": ("j2", None),
        "governed, no limit, first build": ("governed", None),
        "-j1, limit": ("j1", made),
        "-j2, limit": ("j2", made),
        "governed, limit": ("governed", made),
        "governed, limit, first build": ("first", made),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    with made:
        for number in range(rounds):
            for name, (kind, group) in kinds.items():
                if number and name not in ("-j2, no limit", "-j1, limit", "governed, limit"):
                    continue
                found[name].append(started(kind, folder, ninja, group))
    print(f"{HEAVY} files of 450 MB and {LIGHT} small ones, {JOBS} jobs, limit {LIMIT // 1024**2} MB, rounds {rounds}")
    print(f"{'':<32} {'seconds':>8} {'cpu':>7} {'built':>7} {'killed':>7} {'waits':>6} {'retried':>8} {'back':>5}")
    seconds = {}
    for name, runs in found.items():
        seconds[name] = statistics.median(run["seconds"] for run in runs)
        last = runs[-1]
        row = f"{name:<32} {seconds[name]:>8.1f} {statistics.median(run['cpu'] for run in runs):>7.1f}"
        row += f" {last['built']:>4.0f}/{HEAVY + LIGHT} {max(run['killed'] for run in runs):>7.0f}"
        print(row + f" {last['waits']:>6.0f} {last['retries']:>8.0f} {last['back']:>5.0f}")
    faster = 1 - seconds["governed, limit"] / seconds["-j1, limit"]
    slower = seconds["governed, limit"] / seconds["-j2, no limit"] - 1
    whole = all(run["built"] == HEAVY + LIGHT and not run["killed"] for run in found["governed, limit"])
    print(f"-j2 under the limit: {found['-j2, limit'][0]['killed']:.0f} killed: -j1 is the best that survives")
    print(f"governed against -j1 under the limit: {faster:6.1%} faster   (bar 25 %)")
    print(f"governed against -j2 without a limit: {slower:6.1%} slower   (bar 15 %)")
    return whole and faster >= 0.25 and slower <= 0.15 and found["-j2, limit"][0]["killed"] > 0


def small(folder: Path, ninja: str, rounds: int) -> bool:
    write_small(folder)
    found: dict[str, list[dict[str, float]]] = {"j2": [], "governed": []}
    started("j2", folder, ninja, None)  # fills the page cache
    for number in range(8 * rounds):
        for kind in sorted(found, reverse=bool(number % 2)):
            found[kind].append(started(kind, folder, ninja, None, pause=2))
    print(f"\n{SMALL} small files, {JOBS} jobs, {8 * rounds} runs each, in turns")
    print(f"{'':<16} {'seconds':>8} {'best':>8} {'cpu':>8} {'best':>8}")
    medians = {}
    for name, runs in found.items():
        clock, cpu = [run["seconds"] for run in runs], [run["cpu"] for run in runs]
        medians[name] = (statistics.median(clock), statistics.median(cpu))
        print(f"{name:<16} {medians[name][0]:>8.2f} {min(clock):>8.2f} {medians[name][1]:>8.2f} {min(cpu):>8.2f}")
    clock = medians["governed"][0] / medians["j2"][0] - 1
    cpu = medians["governed"][1] / medians["j2"][1] - 1
    print(f"governed against plain ninja: {clock:+.1%} by the clock, {cpu:+.1%} of processor time   (bar 3 %)")
    return clock <= 0.03


def started(kind: str, folder: Path, ninja: str, group: MemoryGroup | None, *, pause: float = 10) -> dict[str, float]:
    """One build from nothing, in a process of its own, inside the group where one is given."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / ".ninja_log").unlink(missing_ok=True)
    enter: Callable[[], None] | None = group.enter if group else None
    killed = group.killed() if group else 0
    words = [sys.executable, __file__, "--ninja", ninja, "--one", kind, str(folder)]
    with served_first(pause):
        done = subprocess.run(words, preexec_fn=enter, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    found["killed"] = group.killed() - killed if group else 0
    found["built"] = len(list((folder / "out").glob("*.o")))
    print(f"  {kind:<9} {'limit' if group else 'no limit':<9} {found['seconds']:7.1f} s", file=sys.stderr, flush=True)
    return found


@contextlib.contextmanager
def served_first(pause: float) -> Iterator[None]:
    """For as long as the block lasts, where it was asked for; then the others have their turn."""
    if not FIRST:
        yield
        return
    share = Path("/proc/self/autogroup")
    share.write_text("-19", encoding="ascii")
    try:
        yield
    finally:
        time.sleep(0.2)
        share.write_text("0", encoding="ascii")
        time.sleep(pause)


def one(kind: str, folder: Path, ninja: str) -> int:
    words = [ninja, "-C", str(folder), "--quiet"]
    environ = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAX_JOBS")}
    said: dict[str, float] = {"waits": 0, "retries": 0, "back": 0}
    if kind in ("governed", "first"):
        (folder / "launcher.ninja").write_text(f"launcher = {gate(folder)}\n", encoding="utf-8")
        peaks = folder / "peaks.json"
        before = record.read_peaks(peaks) if kind == "governed" else {}
        expectation = Expectation(before)
        begun = time.monotonic()
        with Governor(JOBS, expectation=expectation, compiles=folder / "compiles.jsonl") as governor:
            subprocess.run(words, env=governor.environment(environ), stdout=sys.stderr, check=False)
        said |= {"seconds": time.monotonic() - begun, "waits": governor.use.waits, "retries": governor.use.retries}
        said["back"] = governor.use.taken_back
        if kind == "governed":
            record.write_peaks(peaks, before, expectation.measured)
    else:
        (folder / "launcher.ninja").write_text("launcher =\n", encoding="utf-8")
        begun = time.monotonic()
        subprocess.run([*words, f"-{kind}", "-k", "0"], env=environ, stdout=subprocess.DEVNULL, check=False)
        said["seconds"] = time.monotonic() - begun
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF) if kind in ("governed", "first") else None
    said["cpu"] = below.ru_utime + below.ru_stime + (own.ru_utime + own.ru_stime - STARTED if own else 0)
    print(json.dumps(said))
    return 0


def gate(folder: Path) -> str:
    compiler = Compiler(kind="gcc", cxx="g++", c="gcc", cuda_host="g++")
    request = BuildRequest(source=".", system="linux", arch="any", python=sys.executable, compiler=compiler)
    return str(making.make_gate(folder, request, os.environ))


def write_mixed(folder: Path) -> None:
    """Heavy: 300,000 declarations. Light: some of the standard library. Two heavy ones, then fourteen light ones."""
    folder.mkdir(parents=True)
    levels = "".join(f"#define L{n}(a) " + " ".join(f"L{n - 1}(a##{i})" for i in range(10)) + "\n" for n in range(1, 6))
    names = " ".join(f"L5({letter})" for letter in "pqr")
    heavy = f"#define L0(a) int a(int);\n{levels}{names}\nint HEAVY() {{ return 1; }}\n"
    light = "#include <map>\n#include <string>\n"
    light += "int LIGHT(std::string &s) { std::map<std::string, int> m; m[s] = 1; return m.size(); }\n"
    (folder / "heavy.cpp").write_text(heavy, encoding="ascii")
    (folder / "light.cpp").write_text(light, encoding="ascii")
    lines = []
    for number in range(LIGHT):
        lines.append(f"build out/light{number}.cpp.o: cxx light.cpp\n")
        if number % (2 * LIGHT // HEAVY) == 0:
            lines += [f"build out/heavy{number}{half}.cpp.o: cxx heavy.cpp\n" for half in "ab"]
    write_rules(folder, "$launcher g++ -std=c++17 -O1 -DHEAVY=heavy -DLIGHT=light -o $out -c $in", lines)


def write_small(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "small.cpp").write_text("#include <string>\nint small(std::string &s) { return s.size(); }\n", "ascii")
    lines = [f"build out/{n}.cpp.o: cxx small.cpp\n" for n in range(SMALL)]
    write_rules(folder, "$launcher g++ -O1 -o $out -c $in", lines)


def write_rules(folder: Path, command: str, lines: list[str]) -> None:
    text = f"include launcher.ninja\nrule cxx\n  command = {command}\n{''.join(lines)}"
    (folder / "build.ninja").write_text(text, encoding="ascii")


_own = resource.getrusage(resource.RUSAGE_SELF)
STARTED = _own.ru_utime + _own.ru_stime
"""What this process had used before it did anything: not the governor's."""

if __name__ == "__main__":
    raise SystemExit(main())
