"""Prints the record of a build as Markdown: its journal, what the compiles took, the wheel and what is in it.

    python tools/build_record.py WORK "TITLE" [LOG ...] > docs/builds/NAME.md

WORK is the folder of `rekindle build --work`; each LOG is what one run of it printed, for the times left that it said.
No path of the machine gets into the record.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rekindle.build.governor import record  # noqa: E402
from rekindle.build.progress import outputs  # noqa: E402
from rekindle.build.run.journal import Entry, read  # noqa: E402

_ENDS = ("done", "failed", "interrupted")
_SMALL = 60.0
"""Core-seconds below which a target goes into the last row."""
_SAID = re.compile(r"^(?P<at>\d\d:\d\d:\d\d)  compile  (?P<count>\d+/\d+)  (?P<said>.*? left)", re.MULTILINE)
_EVERY = 600
"""Seconds between two rows of what was said."""


def main(words: Sequence[str]) -> None:
    work, title, logs = Path(words[0]), words[1], [Path(word) for word in words[2:]]
    entries = read(work / "journal.jsonl")
    parts = [f"# {title}\n", "Written by `tools/build_record.py` from the build's folder. Times are UTC.\n"]
    parts += ["## The journal\n", _journal(entries)]
    parts += ["## The compiles\n", _compiles(record.read(work / "compiles.jsonl"))]
    if said := list(_said(logs, entries)):
        parts += ["## The time left, as it was said and as it came\n", _table(("at", "files", "said", "it was"), said)]
    for wheel in sorted((work / "repaired").glob("*.whl")):
        parts += ["## The wheel\n", _wheel(wheel)]
    text = "\n".join(parts)
    sys.stdout.write(text.replace(str(work), "WORK").replace(str(Path.home()), "~"))


def _journal(entries: Sequence[Entry]) -> str:
    """What each run did, one row a step: the marks at which it was stopped and went on are in it."""
    rows: list[tuple[str, ...]] = []
    runs = list(dict.fromkeys(entry.run for entry in entries))
    for entry in entries:
        if entry.event in _ENDS:
            seconds = f"{entry.seconds:.1f}" if entry.seconds is not None else ""
            rows.append((entry.at[:19], str(runs.index(entry.run) + 1), entry.step or "", entry.event, seconds))
    return _table(("at", "run", "step", "", "seconds"), rows)


def _compiles(compiles: Iterable[record.Compile]) -> str:
    last = {each.object: each for each in compiles if not each.code}
    by_target: dict[str, list[record.Compile]] = defaultdict(list)
    for each in last.values():
        by_target[outputs.read(each.object).target or "other"].append(each)
    small = [target for target, found in by_target.items() if record.total(found) < _SMALL]
    rest = [each for target in small for each in by_target.pop(target)]
    rows = [_row(target, found) for target, found in sorted(by_target.items(), key=lambda item: -record.total(item[1]))]
    rows += [_row(f"{len(small)} others", rest)] if rest else []
    rows.append(_row("all", list(last.values())))
    return _table(("target", "files", "core-seconds", "slowest", "most memory"), rows)


def _row(target: str, found: Sequence[record.Compile]) -> tuple[str, ...]:
    slowest = max(found, key=lambda each: each.seconds)
    largest = max(found, key=lambda each: each.peak_kb)
    return (
        target,
        str(len(found)),
        f"{record.total(found):,.0f}",
        f"{slowest.seconds:.0f} s (`{outputs.read(slowest.object).file}`)",
        f"{largest.peak_kb / 1024:,.0f} MiB (`{outputs.read(largest.object).file}`)",
    )


def _said(logs: Iterable[Path], entries: Sequence[Entry]) -> Iterable[tuple[str, ...]]:
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
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    parts = [f"`{wheel.name}`, {wheel.stat().st_size:,} bytes, SHA-256 `{digest}`.\n"]
    for verb in ("inspect", "verify"):
        environment = {**os.environ, "COLUMNS": "110", "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-m", "rekindle", verb, str(wheel)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)
        said = "\n".join(line.rstrip() for line in done.stdout.splitlines())
        shown = said.replace(str(wheel.parent) + os.sep, "")
        parts.append(f"```console\n$ rekindle {verb} {wheel.name}\n{shown}\n$ echo $?\n{done.returncode}\n```\n")
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
