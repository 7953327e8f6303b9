"""The promised speed, in one run, as ratios: start-up, plan, review, then the benchmarks with pages of their own.

    nice -n -15 python benchmarks/speed.py [--env ENV] [--rounds N]

Processor time of a whole command, children included, the smallest of several rounds taken in turns: on a busy machine
the clock says what the neighbours do. Without a shelf, an update or a cache, as a new user has it. `--env` is an
environment with torch for the audit; without it that line is UNVERIFIED.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
SCRIPT = HERE.parent / "tests" / "data" / "review" / "planted" / "p16.bat"
REKINDLE = [PYTHON, "-m", "rekindle"]
COMMANDS = {
    "import click, msgspec": [PYTHON, "-c", "import click, msgspec"],
    "--version": [*REKINDLE, "--version"],
    "gpu": [*REKINDLE, "gpu", "Tesla K40c"],
    "plan": [*REKINDLE, "plan", "--gpu", "GTX 1080 Ti", "--os", "windows"],
    "review": [*REKINDLE, "review", str(SCRIPT)],
}


def spent(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def line(what: str, value: float, unit: str, limit: float) -> None:
    met = "met" if value <= limit else "NOT MET"
    print(f"{what:<58} {value:>7.2f} {unit:<2}   goal <= {limit:g}: {met}")


def commands(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"XDG_DATA_HOME": home, "XDG_CACHE_HOME": home, "REKINDLE_CACHE": home}
        times: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for _ in range(rounds):
            for name, command in COMMANDS.items():
                times[name].append(spent(command, environment))
    best = {name: min(measured) for name, measured in times.items()}
    for name, seconds in best.items():
        print(f"{name:<58} {seconds * 1000:>7.0f} ms of processor time")
    line("start-up: gpu against import click, msgspec", best["gpu"] / best["import click, msgspec"], "x", 1.5)
    line("plan against start-up (--version)", best["plan"] / best["--version"], "x", 3)
    line("review above start-up", (best["review"] - best["--version"]) * 1000, "ms", 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--short", action="store_true", help="only the first table")
    options = parser.parse_args()
    commands(options.rounds)
    if options.short:
        return
    others = [["doctor.py"], ["inspect_wheel.py"], ["governor.py", "--first"]]
    others += [["audit.py", options.env]] if options.env else []
    if not options.env:
        print("audit: UNVERIFIED, no --env")
    for words in others:
        print(f"\n{words[0]}", flush=True)
        subprocess.run([PYTHON, str(HERE / words[0]), *words[1:]], check=False)


if __name__ == "__main__":
    main()
