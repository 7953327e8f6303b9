"""The record of a build as Markdown, fit to be published: machine, plan, journal, compiles, errors met, the wheel.

`rekindle build` writes it into the build's folder as `record.md` whenever a run ends. No path of the machine and no
name of its user gets into it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from rekindle.build import overview
from rekindle.build.governor import record
from rekindle.build.progress import outputs
from rekindle.build.run.folders import Folders
from rekindle.build.run.journal import JournalEntry, read
from rekindle.core import files
from rekindle.core.paths import sha256_of
from rekindle.core.redact import redact

_ENDS = ("done", "failed", "interrupted")
_SMALL = 60.0
"""Core-seconds below which a target goes into the last row."""
_SAID = re.compile(r"^(?P<at>\d\d:\d\d:\d\d)  compile  (?P<count>\d+/\d+)  (?P<said>.*? left)", re.MULTILINE)
_EVERY = 600
"""Seconds between two rows of what was said."""


def write(folders: Folders, shown: overview.Overview, version: str) -> Path:
    """`record.md` in the build's folder, of everything that was done there so far."""
    entries = read(folders.journal)
    parts = [f"# {shown.what} for {', '.join(shown.architectures) or 'the CPU'}\n"]
    parts += [
        "Written by `rekindle build`. Times are UTC.\n",
        "## The machine and the plan\n",
        _machine(shown, version),
    ]
    parts += ["## The journal\n", journal(entries)]
    if troubles := _troubles(entries):
        parts += ["## Errors met\n", troubles]
    if folders.compiles.exists():
        parts += ["## The compiles\n", compiles(record.read(folders.compiles))]
    parts += ["## The wheel\n", *map(wheel_line, sorted((folders.root / "repaired").glob("*.whl")))]
    path = folders.root / "record.md"
    files.write_text(path, plain("\n".join(parts), folders.root))
    return path


def plain(text: str, work: Path) -> str:
    """Without what says whose machine it was."""
    for folder, name in ((work, "WORK"), (Path.home(), "~")):
        # As a whole path: with the folder `/b`, `/usr/bin` stays what it is.
        text = re.sub(rf"(?<![\w./\\-]){re.escape(str(folder))}(?![\w.-])", name, text)
    return redact(text)


def wheel_line(wheel: Path) -> str:
    return f"`{wheel.name}`, {wheel.stat().st_size:,} bytes, SHA-256 `{sha256_of(wheel)}`.\n"


def _machine(shown: overview.Overview, version: str) -> str:
    rows = [
        ("wheel version", version), ("toolkit", shown.toolkit or "none"), ("cuDNN", shown.cudnn or "none"),
        ("compiler", shown.compiler), ("Python", shown.python), ("compiles at a time", str(shown.jobs)),
        ("memory", f"{shown.memory_gb:g} GB" if shown.memory_gb else "not known"),
        ("installed for the build", ", ".join(shown.requirements) or "nothing"),
        ("patches", ", ".join(shown.patches) or "none"),
    ]  # fmt: skip
    return table(("", ""), rows)


def _troubles(entries: Sequence[JournalEntry]) -> str:
    rows = [(entry.at[:19], entry.step or "", (entry.note or "").replace("|", "\\|").replace("\n", " ")[:300])
            for entry in entries if entry.event == "failed"]  # fmt: skip
    rows += [
        (entry.at[:19], entry.step or "", f"fixed: {entry.fix.summary}")
        for entry in entries
        if entry.event == "fix" and entry.fix
    ]
    return table(("at", "step", "what"), sorted(rows)) if rows else ""


def journal(entries: Sequence[JournalEntry]) -> str:
    """What each run did, one row a step: the marks at which it was stopped and went on are in it."""
    rows = []
    for each in steps(entries):
        seconds = f"{each.seconds:.1f}" if each.seconds is not None else ""
        rows.append((each.at.replace(" ", "T"), str(each.run), each.name, each.outcome, seconds))
    return table(("at", "run", "step", "", "seconds"), rows)


class ReportStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the build, as its journal has it."""

    at: str
    run: int
    name: str
    outcome: str
    seconds: float | None = None


def steps(entries: Sequence[JournalEntry]) -> list[ReportStep]:
    """Those that came to an end."""
    runs = list(dict.fromkeys(entry.run for entry in entries))
    return [
        ReportStep(
            at=entry.at[:19].replace("T", " "),
            run=runs.index(entry.run) + 1,
            name=entry.step or "",
            outcome=entry.event,
            seconds=entry.seconds,
        )
        for entry in entries
        if entry.event in _ENDS
    ]


def compiles(compiles: Iterable[record.Compile]) -> str:
    last = {each.object: each for each in compiles if not each.code}
    by_target: dict[str, list[record.Compile]] = defaultdict(list)
    for each in last.values():
        by_target[outputs.read(each.object).target or "other"].append(each)
    small = [target for target, found in by_target.items() if record.total(found) < _SMALL]
    rest = [each for target in small for each in by_target.pop(target)]
    rows = [_row(target, found) for target, found in sorted(by_target.items(), key=lambda item: -record.total(item[1]))]
    rows += [_row(f"{len(small)} others", rest)] if rest else []
    rows += [_row("all", list(last.values()))] if last else []
    return table(("target", "files", "core-seconds", "slowest", "most memory"), rows)


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


def said(logs: Iterable[Path], entries: Sequence[JournalEntry]) -> Iterable[tuple[str, ...]]:
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


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
