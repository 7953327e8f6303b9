"""How long `rekindle doctor` takes, against its slowest external command plus `rekindle --version`. Prints a table.

The commands are run in turns in one go, so that whatever else the machine does falls on all of them. With a torch in
`--python` its own `python -m torch.utils.collect_env` is timed too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--python", default=sys.executable, help="the Python whose torch is asked")
    options = parser.parse_args()
    # As installed, with byte code: a machine that forbids writing it would measure the compiler instead.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    version, doctor, slowest, collect = [], [], [], []
    names: dict[str, float] = {}
    for _ in range(options.rounds):
        version.append(timed([sys.executable, "-m", "rekindle", "--version"], environment))
        doctor.append(timed([sys.executable, "-m", "rekindle", "doctor"], environment))
        seconds, name = slowest_command(environment)
        slowest.append(seconds)
        names[name] = seconds
        if has_torch(options.python):
            collect.append(timed([options.python, "-m", "torch.utils.collect_env"], environment))
    allowed = statistics.median(slowest) + statistics.median(version)
    ratio = statistics.median(doctor) / allowed
    print(f"{'what':<44} {'median':>9} {'best':>9}")
    for what, times in (("rekindle --version", version), ("slowest external command", slowest)):
        print(f"{what:<44} {row(times)}")
    print(f"{'rekindle doctor':<44} {row(doctor)}   {ratio:.2f} x their sum (limit {LIMIT:.2f})")
    if collect:
        times = statistics.median(collect) / statistics.median(doctor)
        print(f"{'python -m torch.utils.collect_env':<44} {row(collect)}   {times:.1f} x the doctor")
    else:
        print(f"{'python -m torch.utils.collect_env':<44} UNVERIFIED: no torch in {options.python}")
    print(f"slowest were: {', '.join(sorted(names, key=lambda name: -names[name])[:3])}")


def slowest_command(environment: dict[str, str]) -> tuple[float, str]:
    """The slowest of the programs that one doctor starts, as it timed them itself."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "machine.json")
        subprocess.run(
            [sys.executable, "-m", "rekindle", "doctor", "--save", str(file)],
            check=False,
            capture_output=True,
            env=environment,
        )
        commands = json.loads(file.read_text(encoding="utf-8"))["recording"]["commands"]
    return max((said.get("seconds", 0.0), name) for name, said in commands.items())


def timed(command: list[str], environment: dict[str, str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=False, capture_output=True, env=environment)
    return time.perf_counter() - begun


def has_torch(python: str) -> bool:
    ask = [python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"]
    return subprocess.run(ask, check=False, capture_output=True).returncode == 0


def row(times: list[float]) -> str:
    return f"{statistics.median(times) * 1000:>6.0f} ms {min(times) * 1000:>6.0f} ms"


if __name__ == "__main__":
    main()
