"""How long a cold `rekindle gpu "Tesla K40c"` takes, against Python importing click and msgspec. Prints a table.

The two are run in turns in one go, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

ROUNDS = 25
COMMANDS = {
    'python -c "import click, msgspec"': [sys.executable, "-c", "import click, msgspec"],
    'rekindle gpu "Tesla K40c"': [sys.executable, "-m", "rekindle", "gpu", "Tesla K40c"],
}


def main() -> None:
    # As installed, with byte code: a machine that forbids writing it would measure the compiler instead.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            begun = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=environment)
            times[name].append(time.perf_counter() - begun)
    base = statistics.median(times[next(iter(COMMANDS))])
    print(f"{'command':<36} {'median':>9} {'best':>9} {'ratio':>6}   (limit 1.50)")
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:<36} {median * 1000:>6.0f} ms {min(measured) * 1000:>6.0f} ms {median / base:>6.2f}")


if __name__ == "__main__":
    main()
