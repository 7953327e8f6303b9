"""Set up a real Windows CPython on Linux (Wine 10) and run the tests there as win32.

    python tools/windows_bench.py setup             fetch and prepare; goes on where it stopped
    python tools/windows_bench.py test [PYTEST ...] the unit suite and tests/windows, as win32 (--all: long ones too)
    python tools/windows_bench.py run PROGRAM ...   one Windows program (`python` is the bench's interpreter)
    python tools/windows_bench.py stop              end the server

Where Windows cannot be run, it says UNVERIFIED and why, and ends with exit code 75: never with 0.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

PROJECT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(PROJECT / "src"), str(PROJECT / "tests")]

from support.windows_python import PYTHONS, WindowsPython  # noqa: E402
from support.wine import Bench, CannotSetUp, windows_path  # noqa: E402

UNVERIFIED = 75
_FEW = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.11", choices=list(PYTHONS), help="which Windows Python")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for the program or the tests")
    parser.add_argument("--all", action="store_true", help="also the tests that are marked long")
    parser.add_argument("what", choices=["setup", "test", "run", "stop"])
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    # Ended from outside, the Windows processes are ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bench = Bench(say=lambda text: print(text, file=sys.stderr, flush=True))
    if options.what == "stop":
        bench.stop()
        return 0
    begun = time.monotonic()
    try:
        bench.set_up()
        python = WindowsPython(bench, options.python)
        python.set_up(PROJECT)
    except CannotSetUp as error:
        print(f"UNVERIFIED: the tests could not be run as Windows: {error}")
        return UNVERIFIED
    print(f"windows bench: ready in {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
    if options.what == "setup":
        return 0
    if options.what == "run":
        program, *rest = options.rest
        args = [python.executable if program == "python" else program, *rest]
        return bench.call(args, env=environment(), cwd=Path.cwd(), timeout=options.timeout, capture=False).returncode
    return tests(python, options.rest, options.timeout, everything=options.all)


def tests(python: WindowsPython, words: list[str], timeout: float, *, everything: bool = False) -> int:
    """Run pytest there and say how many tests really ran; pytest itself has said why the others did not."""
    workers = str(min(os.cpu_count() or 1, 4))
    chosen = words or ["tests/unit", "tests/windows", "-n", workers, "--dist=worksteal", "--durations=25"]
    report = python.bench.folder / f"report-{os.getpid()}.xml"
    # A file that is named is meant whole.
    marked = "long or not long" if everything or words else "not long"
    command = [python.executable, "-m", "pytest", "-q", "-m", marked, "-p", "no:cacheprovider"]
    command.append(f"--junitxml={windows_path(report)}")
    try:
        done = _carried_out(python, [*command, *chosen], report, timeout)
        if not report.is_file():
            return done
        suite = ElementTree.parse(report).getroot().find("testsuite")
        counts = {key: int(suite.get(key, "0")) for key in ("tests", "skipped")} if suite is not None else {}
        ran = counts.get("tests", 0) - counts.get("skipped", 0)
        how = "Wine 10 through box64" if python.bench.emulator else "Wine 10"
        print(f"as win32, CPython {PYTHONS[python.minor][1]} under {how}: {ran} tests run, ", end="")
        print(f"{counts.get('skipped', 0)} could not be (reasons above)")
        failed = _failed(report)
        if done == 1 and 0 < len(failed) <= _FEW and not words:
            # Translated and two at a time, a test can miss its time; alone it must pass, or it has failed.
            print(f"{len(failed)} failed and are run once more, alone: {' '.join(failed)}", flush=True)
            done = _carried_out(python, [*command, "-n", "0", *failed], report, timeout)
    except subprocess.TimeoutExpired:
        print(f"the tests as win32 did not end in {timeout:.0f} s")
        return 1
    finally:
        report.unlink(missing_ok=True)
    return done


def _carried_out(python: WindowsPython, command: list[str], report: Path, timeout: float) -> int:
    """pytest's exit code; never 0 without its report.

    When Wine's server is ended under it, Python is gone with code 0 and nothing was tested.
    """
    report.unlink(missing_ok=True)
    done = python.bench.call(command, env=environment(), cwd=PROJECT, timeout=timeout, capture=False).returncode
    if not report.is_file():
        print(f"the Windows Python ended with code {done} and left no report: no test counts")
        return done or 1
    return done


def _failed(report: Path) -> list[str]:
    """The tests that failed, as pytest takes them on its command line."""
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            module = case.get("classname", "").replace(".", "/")
            found.append(f"{module}.py::{case.get('name', '')}" if module else str(case.get("name")))
    return found


def environment() -> dict[str, str]:
    """The variables the interpreter needs to find the project; compiled files stay out of the working tree."""
    return {
        "PYTHONPATH": windows_path(PROJECT / "src"),
        "PYTHONPYCACHEPREFIX": r"C:\pycache",
        "HYPOTHESIS_STORAGE_DIRECTORY": r"C:\hypothesis",
        "REKINDLE_TEST_PACE": os.environ.get("REKINDLE_TEST_PACE") or "10",
    }


if __name__ == "__main__":
    sys.exit(main())
