"""Writes `compile_times.json`: how long the files of real builds took, from Ninja's own logs.

    python tools/observe/compile_times.py ID LOG "SOURCE" [ID LOG "SOURCE" ...]

LOG is a `compiles.jsonl` of a build's folder, a `.ninja_log` (of a governed build it counts the waits at the gate as
well), or a CSV with the columns `object,start_ms,end_ms`. A build that is named anew replaces the row of its ID; the
others stay.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rekindle.build.governor import record  # noqa: E402
from rekindle.build.progress import outputs  # noqa: E402
from rekindle.formats import ninja_log  # noqa: E402
from tools.observe import table  # noqa: E402


def main(words: list[str]) -> None:
    table.write_builds("compile_times", words, measured)


def measured(log: Path) -> table.Targets:
    """Tenths of a second by target, folder and file."""
    targets = table.targets()
    found = times(log)
    for path in sorted(found):
        output = outputs.read(path)
        if output.kind != "other":
            targets[output.target][output.folder][output.file] = max(1, round(found[path] / 100))
    return targets


def times(log: Path) -> dict[str, int]:
    """Milliseconds by output."""
    if log.suffix == ".csv":
        with log.open(encoding="utf-8", newline="") as stream:
            return {each["object"]: int(each["end_ms"]) - int(each["start_ms"]) for each in csv.DictReader(stream)}
    if log.suffix == ".jsonl":
        return {each.object: round(each.seconds * 1000) for each in record.read(log) if not each.code}
    return {step.output: step.milliseconds for step in ninja_log.read(log)}


if __name__ == "__main__":
    main(sys.argv[1:])
