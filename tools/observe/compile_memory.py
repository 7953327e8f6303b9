"""Writes `compile_memory.json`: how much memory the files of real builds took, from the governor's own records.

    python tools/observe/compile_memory.py ID COMPILES "SOURCE" [ID COMPILES "SOURCE" ...]

COMPILES is a `compiles.jsonl` of a build's folder. A build that is named anew replaces the row of its ID; the others
stay.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rekindle.build.governor import record  # noqa: E402
from rekindle.build.progress import outputs  # noqa: E402
from tools.observe import table  # noqa: E402

_LEAST = 32
"""MiB below which nobody needs to know."""


def main(words: list[str]) -> None:
    table.write_builds("compile_memory", words, measured)


def measured(compiles: Path) -> table.Targets:
    """MiB by target, folder and file."""
    targets = table.targets()
    for each in sorted(record.read(compiles), key=lambda one: one.object):
        output, size = outputs.read(each.object), round(each.peak_kb / 1024)
        if output.kind != "other" and not each.code and size >= _LEAST:
            files = targets[output.target][output.folder]
            files[output.file] = max(size, files.get(output.file, 0))
    return targets


if __name__ == "__main__":
    main(sys.argv[1:])
