"""What the dry run of `rekindle patch` costs beside a script that walks the tree and searches with an expression.

    python benchmarks/patch.py ROOT [--runs N]

ROOT is a source tree of PyTorch (1.13.1 is what the figures in the docs are from). The script finds names, reads the
files and searches `cmake_minimum_required(VERSION x)`; it writes nothing and prints what it found, as the dry run does.
Both are started as programs of their own; the bar is 2 × the script + the start of Rekindle, with the same files found.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = r"""
import os, re, sys
call = re.compile(r"cmake_(?:minimum_required|policy)\s*\(\s*VERSION\s+(?:[\d.]+\.\.\.)?(\d+)\.(\d+)", re.I)
for folder, folders, names in os.walk(sys.argv[1]):
    if ".git" in folders:
        folders.remove(".git")
    for name in names:
        if name in ("CMakeLists.txt", "CMakeLists.txt.in") or name.endswith((".cmake", ".cmake.in")):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                continue
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read()
            if any((int(a), int(b)) < (3, 5) for a, b in call.findall(text)):
                print(os.path.relpath(path, sys.argv[1]).replace(os.sep, "/"))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    rekindle = [sys.executable, "-m", "rekindle"]
    dry = [*rekindle, "patch", str(options.root), "--dry-run", "--only", "cmake-minimum", "--torch", "1.13.1", "--json"]
    script = [sys.executable, "-c", SCRIPT, str(options.root)]
    start = [*rekindle, "--version"]
    times: dict[str, list[float]] = {"script": [], "start": [], "dry run": []}
    outputs: dict[str, str] = {}
    for number in range(options.runs + 1):
        for name, command in (("script", script), ("start", start), ("dry run", dry)):
            begun = time.perf_counter()
            done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
            if number:  # the first round fills the page cache
                times[name].append(time.perf_counter() - begun)
            outputs[name] = done.stdout
    found = set(json.loads(outputs["dry run"])["changed"])
    expected = set(outputs["script"].splitlines())
    median = {name: statistics.median(values) for name, values in times.items()}
    bar = 2 * median["script"] + median["start"]
    for name, value in median.items():
        print(f"{name:<22} {value * 1000:8.0f} ms  (min {min(times[name]) * 1000:.0f})")
    print(f"{'bar: 2 x script + start':<22} {bar * 1000:7.0f} ms")
    print(f"files below 3.5        {len(found):8}     {'the same' if found == expected else found ^ expected}")
    well = median["dry run"] <= bar and found == expected
    print("PASS" if well else "FAIL")
    return 0 if well else 1


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}


if __name__ == "__main__":
    raise SystemExit(main())
