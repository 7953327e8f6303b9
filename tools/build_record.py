"""Prints the record of a build as Markdown, with what `inspect` and `verify` say of its wheel.

    python tools/build_record.py WORK "TITLE" [LOG ...] > docs/builds/NAME.md

WORK is the folder of `rekindle build --work`; each LOG is what one run of it printed, for the times left that it said.
`rekindle build` itself writes the shorter `record.md`. No path of the machine gets into the record.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rekindle.build import overview  # noqa: E402
from rekindle.build.governor import record  # noqa: E402
from rekindle.build.run.journal import JournalEntry, read  # noqa: E402

_SAID = re.compile(r"^(?P<at>\d\d:\d\d:\d\d)  compile  (?P<count>\d+/\d+)  (?P<said>.*? left)", re.MULTILINE)
_EVERY = 600
"""Seconds between two rows of what was said."""


def main(words: Sequence[str]) -> None:
    work, title, logs = Path(words[0]), words[1], [Path(word) for word in words[2:]]
    entries = read(work / "journal.jsonl")
    parts = [f"# {title}\n", "Written by `tools/build_record.py` from the build's folder. Times are UTC.\n"]
    parts += ["## The journal\n", overview.journal_table(entries)]
    parts += ["## The compiles\n", overview.compiles_table(record.read(work / "compiles.jsonl"))]
    if said := list(_said(logs, entries)):
        head = ("at", "files", "said", "it was")
        parts += ["## The time left, as it was said and as it came\n", overview.table(head, said)]
    for wheel in sorted((work / "repaired").glob("*.whl")):
        parts += ["## The wheel\n", _wheel(wheel)]
    text = "\n".join(parts)
    sys.stdout.write(text.replace(str(work), "WORK").replace(str(Path.home()), "~"))


def _said(logs: Iterable[Path], entries: Sequence[JournalEntry]) -> Iterable[tuple[str, ...]]:
    """Of the runs that came to the end of the compile: every ten minutes what was said, and what it was then."""
    ends = [datetime.fromisoformat(e.at[:19]) for e in entries if e.step == "compile" and e.event == "done"]
    for log in logs:
        next_at = None
        for match in _SAID.finditer(log.read_text(encoding="utf-8", errors="replace")):
            clock = datetime.strptime(match["at"], "%H:%M:%S").time()
            at = next((datetime.combine(end.date(), clock) for end in ends if clock <= end.time()), None)
            if at is None or (next_at is not None and at < next_at):
                continue
            next_at = at + timedelta(seconds=_EVERY)
            was = min(end - at for end in ends if end >= at)
            yield match["at"], match["count"], match["said"], f"{was.total_seconds() / 60:.0f} min"


def _wheel(wheel: Path) -> str:
    parts = [overview.wheel_line(wheel)]
    for verb in ("inspect", "verify"):
        environment = {**os.environ, "COLUMNS": "110", "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-m", "rekindle", verb, str(wheel)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)
        said = "\n".join(line.rstrip() for line in done.stdout.splitlines())
        shown = said.replace(str(wheel.parent) + os.sep, "")
        parts.append(f"```console\n$ rekindle {verb} {wheel.name}\n{shown}\n$ echo $?\n{done.returncode}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main(sys.argv[1:])
