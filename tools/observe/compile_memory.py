"""Writes `compile_memory.json`: how much memory the files of real builds took, from the governor's own records.

    python tools/observe/compile_memory.py ID COMPILES "SOURCE" [ID COMPILES "SOURCE" ...]

COMPILES is a `compiles.jsonl` of a build's folder. A build that is named anew replaces the row of its ID; the others
stay.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rekindle.build import outputs  # noqa: E402
from rekindle.build.governor import record  # noqa: E402
from tools.observe import table  # noqa: E402

_LEAST = 32
"""MiB below which nobody needs to know."""


def main(words: list[str]) -> None:
    there = (table.OBSERVED / "compile_memory.json").exists()
    kept = {row["id"]: row for row in table.read("compile_memory")["builds"]} if there else {}
    for name, compiles, source in zip(words[::3], words[1::3], words[2::3], strict=True):
        kept[name] = row(name, Path(compiles), source)
        print(f"{name}: {sum(len(f) for t in kept[name]['targets'].values() for f in t.values())} files")
    table.write("compile_memory", {"builds": list(kept.values())})


def row(name: str, compiles: Path, source: str) -> dict[str, object]:
    targets: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for each in sorted(record.read(compiles), key=lambda one: one.object):
        output, size = outputs.read(each.object), round(each.peak_kb / 1024)
        if output.kind != "other" and not each.code and size >= _LEAST:
            files = targets[output.target][output.folder]
            files[output.file] = max(size, files.get(output.file, 0))
    return {
        "id": name,
        "source": source,
        "observed_at": table.today(),
        "evidence": "binary",
        "targets": {target: dict(folders) for target, folders in targets.items()},
    }


if __name__ == "__main__":
    main(sys.argv[1:])
