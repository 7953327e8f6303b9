"""What an audit costs: bytes read of a cold environment, and the time of a warm one against listing its files.

    python benchmarks/audit.py ENV        an environment with torch and its CUDA libraries, 4 GB or more

The share of bytes comes from /proc/self/io after the page cache was dropped (which needs root; else it is UNVERIFIED).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 7
COLD = """
import sys
from pathlib import Path
from rekindle import audit
def read(): return next(int(line.split()[1]) for line in open("/proc/self/io") if line.startswith("read_bytes"))
before = read()
audit(Path(sys.argv[1]), gpus=["H200"])
print(read() - before)
"""


def main() -> None:
    root = Path(sys.argv[1])
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    print(f"{root.name}: {size / 1e9:.2f} GB")
    print(_cold(root, size))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as cache:
        environment["XDG_CACHE_HOME"] = cache
        audit = [sys.executable, "-m", "rekindle", "audit", str(root), "--gpu", "H200"]
        listing = ["find", str(root), "-type", "f"]
        subprocess.run(audit, env=environment, capture_output=True, check=False)
        times: dict[str, list[float]] = {"find ENV -type f": [], "rekindle audit ENV (warm)": []}
        for _ in range(ROUNDS):
            for name, command in zip(times, (listing, audit), strict=True):
                begun = time.perf_counter()
                subprocess.run(command, env=environment, capture_output=True, check=False)
                times[name].append(time.perf_counter() - begun)
    base = statistics.median(times["find ENV -type f"])
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:<28} {median * 1000:>6.0f} ms {median / base:>6.1f}×   (goal 3)")


def _cold(root: Path, size: int) -> str:
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    except OSError as error:
        return f"bytes read: UNVERIFIED, the page cache could not be dropped ({error.strerror})"
    done = subprocess.run([sys.executable, "-c", COLD, str(root)], capture_output=True, text=True, check=True)
    return f"bytes read, cold: {int(done.stdout) / 1e6:.0f} MB, {int(done.stdout) / size:.1%} of it (goal below 5 %)"


if __name__ == "__main__":
    main()
