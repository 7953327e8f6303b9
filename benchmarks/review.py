"""What a review costs above start-up: processor time of `rekindle review FILE` less that of `rekindle --version`.

    python benchmarks/review.py [FILE...]

Without files it takes the scripts of `tests/data/review/planted`. The two commands are run in turns, so that whatever
else the machine does falls on both; byte code is written first, as in an installation. The limit is 50 ms on a machine
of today; the ratio to start-up is what can be compared between machines.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7


def spent(*words: str, environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "rekindle", *words], capture_output=True, check=False, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_process(files: list[Path]) -> float:
    """Seconds for one script in a process that has reviewed before."""
    sys.path.insert(0, str(ROOT / "src"))
    from rekindle.review.review import review

    review(files)
    begun = time.process_time()
    for path in files:
        review([path])
    return (time.process_time() - begun) / len(files)


def main() -> int:
    files = [Path(name) for name in sys.argv[1:]]
    folder = ROOT / "tests" / "data" / "review" / "planted"
    files = files or sorted(path for path in folder.iterdir() if not path.name.endswith(".json"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT / "src")
    spent("review", str(files[0]), environment=environment)
    start = statistics.median(spent("--version", environment=environment) for _ in range(ROUNDS))
    print(f"start-up {start * 1000:.0f} ms")
    above = []
    for path in files:
        took = statistics.median(spent("review", str(path), environment=environment) for _ in range(3)) - start
        above.append(took)
        print(f"{path.name:<20} {took * 1000:>5.0f} ms above start-up")
    middle = statistics.median(above)
    print(f"median {middle * 1000:.0f} ms above start-up ({middle / start:.2f} of it), "
          f"in a running process {in_process(files) * 1000:.1f} ms each")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
