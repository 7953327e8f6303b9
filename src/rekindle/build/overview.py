"""A build on one page: before hours are spent on it what was detected, how much it takes, how long; and its record.

`rekindle build` writes the record into the build's folder as `record.md` whenever a run ends. No path of the machine
and no name of its user gets into it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rekindle.build.configure.preflight import free_below
from rekindle.build.configure.request import BuildRequest
from rekindle.build.governor import record
from rekindle.build.progress import outputs
from rekindle.build.run.folders import Folders
from rekindle.build.run.journal import JournalEntry, read
from rekindle.core import console, files
from rekindle.core.paths import sha256_of
from rekindle.core.redact import redact
from rekindle.core.version import Version
from rekindle.knowledge.builds import costs
from rekindle.machine.model import Machine


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a table, and the figures behind them. None: not known."""

    what: str
    toolkit: str | None
    cudnn: str | None
    compiler: str
    python: str
    architectures: tuple[str, ...]
    folder: str
    jobs: int
    memory_gb: float | None
    disk_free_gb: float | None
    disk_needed_gb: float | None
    download_gb: float | None
    """At most: of what the figure counts, the toolkit is here already. None also for a source that lies here."""
    minutes: int | None
    """On the cores of this machine, from scratch; less where something is done already."""
    requirements: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def overview(request: BuildRequest, seen: Machine, *, folder: str, jobs: int | None, here: bool) -> Overview:
    """`here` is False for a recorded machine: its own disks and limits count, not ours."""
    row = costs.source_build(Version(str(request.release)).major_minor) if request.release else None
    row = costs.gpu_half(row) if row and request.base else row
    cores = seen.processor.cores or 1
    count = jobs or cores
    real = min(cores, seen.processor.physical or cores)
    minutes = None
    if row is not None:
        minutes = costs.build_minutes(row, request.system, cores=real, jobs=count, architectures=len(request.cards))
    what = f"PyTorch {request.release}" if request.release else f"{request.name} {request.version or ''}".strip()
    what += ", its GPU half" if request.base else ""
    return Overview(
        what=what,
        toolkit=f"CUDA {request.cuda.version} in {request.cuda.root}" if request.cuda else None,
        cudnn=_cudnn(request),
        compiler=_compiler(request),
        python=f"{request.python_version or ''} {request.python}".strip(),
        architectures=request.cards,
        folder=folder,
        jobs=count,
        memory_gb=_gb(seen.memory.usable),
        disk_free_gb=_gb(_free(folder, seen, here=here)),
        disk_needed_gb=row.disk_gb if row else None,
        download_gb=row.download_gb if row and not request.source else None,
        minutes=minutes,
        requirements=request.requirements,
        patches=request.patches or (),
        missing=_missing(request, seen),
    )


def text(found: Overview) -> str:
    rows = [
        ("build", found.what),
        ("for", ", ".join(found.architectures) or "the CPU"),
        ("toolkit", found.toolkit or "none"),
        ("cuDNN", found.cudnn or "none"),
        ("compiler", found.compiler),
        ("Python", found.python),
        ("folder", found.folder),
        (
            "at a time",
            f"{found.jobs} compile{'s' if found.jobs != 1 else ''}"
            + (f", {found.memory_gb:g} GB of memory" if found.memory_gb else ""),
        ),
        ("disk", _disk(found)),
        ("takes", _time(found)),
        ("installs", ", ".join(found.requirements)),
        ("patches", ", ".join(found.patches)),
        *(("missing", each) for each in found.missing),
    ]
    return console.table([row for row in rows if row[1]])


def _cudnn(request: BuildRequest) -> str | None:
    if request.base is not None:
        return f"{pin}, the base's" if (pin := request.base.pin("cudnn")) else None
    return f"{request.cudnn.version} in {request.cudnn.root}" if request.cudnn else None


def _compiler(request: BuildRequest) -> str:
    compiler = request.compiler
    if compiler.toolset is not None:
        return f"{compiler.kind}, MSVC toolset {compiler.toolset} of {compiler.studio}"
    return f"{compiler.cxx} {compiler.version or ''}".strip()


def _missing(request: BuildRequest, seen: Machine) -> tuple[str, ...]:
    """What the plan does without and a user may not have meant to."""
    found = []
    if request.cuda and _cudnn(request) is None and request.torch:
        found.append("cuDNN: none is planned, so convolutions on the GPU are slow")
    if request.cuda and not seen.gpus:
        found.append("a GPU: none was detected, so the wheel cannot be tried on one here")
    return tuple(found)


def _disk(found: Overview) -> str:
    free = f"{found.disk_free_gb:g} GB free" if found.disk_free_gb is not None else "free space unknown"
    return f"{free}, about {found.disk_needed_gb:g} GB needed" if found.disk_needed_gb is not None else free


def _time(found: Overview) -> str:
    if found.minutes is None:
        return ""
    hours = f"{found.minutes} min" if found.minutes < 90 else f"{found.minutes / 60:.1f} h"
    download = f", up to {found.download_gb:g} GB to download" if found.download_gb is not None else ""
    return f"about {hours} from scratch{download}"


def _free(folder: str, seen: Machine, *, here: bool) -> int | None:
    if not here:
        roles = {disk.role: disk.free for disk in seen.disks}
        return next((roles[role] for role in ("home", "here", "temp") if roles.get(role) is not None), None)
    return free_below(Path(folder))


def _gb(size: int | None) -> float | None:
    return round(size / 1e9, 1) if size is not None else None


_ENDS = ("done", "failed", "interrupted")
_SMALL = 60.0
"""Core-seconds below which a target goes into the last row."""


def write_record(folders: Folders, shown: Overview, version: str) -> Path:
    """`record.md` in the build's folder, of everything that was done there so far."""
    entries = read(folders.journal)
    parts = [f"# {shown.what} for {', '.join(shown.architectures) or 'the CPU'}\n"]
    parts += [
        "Written by `rekindle build`. Times are UTC.\n",
        "## The machine and the plan\n",
        _record_machine(shown, version),
    ]
    parts += ["## The journal\n", journal_table(entries)]
    if troubles := _troubles(entries):
        parts += ["## Errors met\n", troubles]
    if folders.compiles.exists():
        parts += ["## The compiles\n", compiles_table(record.read(folders.compiles))]
    parts += ["## The wheel\n", *map(wheel_line, sorted((folders.root / "repaired").glob("*.whl")))]
    path = folders.root / "record.md"
    files.write_text(path, without_places("\n".join(parts), folders.root))
    return path


def without_places(text: str, work: Path) -> str:
    """Without what says whose machine it was."""
    for folder, name in ((work, "WORK"), (Path.home(), "~")):
        # As a full path: with the folder `/b`, `/usr/bin` stays what it is.
        text = re.sub(rf"(?<![\w./\\-]){re.escape(str(folder))}(?![\w.-])", name, text)
    return redact(text)


def wheel_line(wheel: Path) -> str:
    return f"`{wheel.name}`, {wheel.stat().st_size:,} bytes, SHA-256 `{sha256_of(wheel)}`.\n"


def _record_machine(shown: Overview, version: str) -> str:
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


def journal_table(entries: Sequence[JournalEntry]) -> str:
    """What each run did, one row a step: the marks at which it was stopped and went on are in it."""
    rows = []
    for each in report_steps(entries):
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


def report_steps(entries: Sequence[JournalEntry]) -> list[ReportStep]:
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


def compiles_table(compiles: Iterable[record.Compile]) -> str:
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


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
