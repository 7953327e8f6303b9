"""Writes `compile_times.json`: how long the files of real builds took, from Ninja's own logs.

    python tools/observe/compile_times.py ID LOG "SOURCE" [ID LOG "SOURCE" ...]

LOG is a `.ninja_log`, or a CSV with the columns `object,start_ms,end_ms`. A build that is named anew replaces the row
of its ID; the others stay.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rekindle.build import outputs  # noqa: E402
from rekindle.formats import ninja_log  # noqa: E402
from tools.observe import table  # noqa: E402


def main(words: list[str]) -> None:
    kept = {row["id"]: row for row in table.read("compile_times")["builds"]} if _exists() else {}
    for name, log, source in zip(words[::3], words[1::3], words[2::3], strict=True):
        kept[name] = row(name, times(Path(log)), source)
        print(f"{name}: {sum(len(f) for t in kept[name]['targets'].values() for f in t.values())} outputs")
    table.write("compile_times", {"builds": list(kept.values())})


def times(log: Path) -> dict[str, int]:
    """Milliseconds by output."""
    if log.suffix == ".csv":
        with log.open(encoding="utf-8", newline="") as stream:
            return {each["object"]: int(each["end_ms"]) - int(each["start_ms"]) for each in csv.DictReader(stream)}
    return {step.output: step.milliseconds for step in ninja_log.read(log)}


def row(name: str, found: dict[str, int], source: str) -> dict[str, object]:
    targets: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for path in sorted(found):
        output = outputs.read(path)
        if output.kind != "other":
            targets[output.target][output.folder][output.file] = max(1, round(found[path] / 100))
    return {
        "id": name,
        "source": source,
        "observed_at": table.today(),
        "evidence": "binary",
        "targets": {target: dict(folders) for target, folders in targets.items()},
    }


def _exists() -> bool:
    return (table.OBSERVED / "compile_times.json").exists()


if __name__ == "__main__":
    main(sys.argv[1:])
