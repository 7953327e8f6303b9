"""The report of a build as one HTML file: what took how long, where memory was the limit, what came out.

Made from what a build leaves behind: `.ninja_log` of anybody's build, and of Rekindle's own also its journal and what
the governor measured of each compile.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from rekindle.build.configure.compiler_cache import CacheUse
from rekindle.build.governor import governor, record
from rekindle.build.governor.record import GovernorUse
from rekindle.build.overview import Overview, ReportStep
from rekindle.build.overview import report_steps as steps
from rekindle.build.run import journal
from rekindle.build.run.folders import Folders
from rekindle.core import codec, console, files
from rekindle.core.errors import BadInput, NotFound
from rekindle.core.findings import State, worst
from rekindle.core.regex import LONGEST, re2
from rekindle.formats import ninja_log
from rekindle.web import page
from rekindle.web.timeline import KINDS, Timeline, timeline
from rekindle.wheels.inspect.inspection import inspect
from rekindle.wheels.verify.verify import Verification, report_beside

_WIDTH = 1000.0
"""The drawing's own units from left to right."""
_ROW = 14.0


class WheelCheck(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    name: str
    state: State
    found: str
    card: str | None = None
    seconds: float | None = None


class WheelSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    bytes: int
    parts: dict[str, int] = {}
    """Unpacked bytes by part: GPU code, libraries, Python, the rest."""
    targets: dict[str, int] = {}
    """How many pieces of GPU code there are for each target."""
    sizes: dict[str, int] = {}
    """Bytes of GPU code for each target, as they lie in the files."""
    state: State = State.UNVERIFIED
    checks: tuple[WheelCheck, ...] = ()
    """What `verify` found, from the report beside the wheel; empty where it has not run."""


class BuildWarning(msgspec.Struct, frozen=True, kw_only=True):
    tool: str
    text: str
    count: int = 1


class BuildWarnings(msgspec.Struct, frozen=True, kw_only=True):
    """`files`: how often compilers warned about source files, by their flag."""

    found: tuple[BuildWarning, ...] = ()
    files: dict[str, int] = {}


class BuildSummary(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.report/1"
    title: str
    timeline: Timeline
    steps: tuple[ReportStep, ...] = ()
    retried: int = 0
    """Compiles that the system killed for memory, and that ran alone afterwards."""
    wheels: tuple[WheelSummary, ...] = ()
    overview: Overview | None = None
    """Plan and machine, of a build by Rekindle."""
    memory: str = ""
    """Where memory was the limit, in a line; empty where nothing waited."""
    cache: str = ""
    """What the compiler cache saved, in a line; empty without one."""
    warnings: BuildWarnings = BuildWarnings()
    failures: tuple[str, ...] = ()


def build_report(path: Path, title: str | None = None) -> BuildSummary:
    """The report of a `.ninja_log`, of a folder with one in it, or of the folder of `rekindle build --work`."""
    log = log_of(path)
    folders = Folders(path) if path.is_dir() and (path / "journal.jsonl").is_file() else None
    compiles = record.read(folders.compiles) if folders else []
    entries = journal.read(folders.journal) if folders else []
    wheels = sorted([*path.glob("wheels/*.whl"), *path.glob("repaired/*.whl")]) if folders else []
    shown = _overview(folders)
    drawn = timeline(ninja_log.read(log), compiles)
    name = f"{shown.what} for {', '.join(shown.architectures) or 'the CPU'}" if shown else None
    return BuildSummary(
        title=title or name or f"Build in {(path if path.is_dir() else path.parent).resolve().name}",
        timeline=drawn,
        steps=tuple(steps(entries)),
        retried=sum(each.retried for each in compiles),
        wheels=tuple(_wheel(wheel) for wheel in wheels),
        overview=shown,
        memory=_memory(entries),
        cache=_cache(entries, drawn),
        warnings=read_warnings(_plain_logs(folders)) if folders else BuildWarnings(),
        failures=tuple(f"{entry.step}: {entry.note}" for entry in entries if entry.event == "failed" and entry.note),
    )


def _plain_logs(folders: Folders) -> Iterator[Path]:
    """None of them by a link: in a folder that somebody hands over it may lead to anything."""
    every = sorted(folders.logs.glob("*.log"))
    return (each for each in every if each.is_file() and not files.is_link(each))


def _overview(folders: Folders | None) -> Overview | None:
    """What the build said before it began; None of a build that is older than the file, or not Rekindle's."""
    with contextlib.suppress(BadInput, NotFound):
        return codec.from_json(files.read_bytes(folders.overview), Overview) if folders else None
    return None


def _memory(entries: list[journal.JournalEntry]) -> str:
    last = next((entry.note for entry in reversed(entries) if entry.event == "governor" and entry.note), "")
    with contextlib.suppress(BadInput):
        return governor.summary(codec.from_json(last, GovernorUse)) or ""
    return ""


def _cache(entries: list[journal.JournalEntry], drawn: Timeline) -> str:
    """Of all runs together. What was saved is reckoned by what the compiles that missed took."""
    used = []
    for note in (entry.note for entry in entries if entry.event == "cache" and entry.note):
        with contextlib.suppress(BadInput):
            used.append(codec.from_json(note.encode(), CacheUse))
    hits, misses = sum(each.hits for each in used), sum(each.misses for each in used)
    if not hits + misses:
        return ""
    said = f"{hits} of {hits + misses} compiles came out of {used[-1].launcher} ({100 * hits / (hits + misses):.0f} %)"
    compiled = sum(bar.seconds for bar in drawn.bars if bar.kind in (KINDS["cuda"], KINDS["cxx"], KINDS["c"]))
    if not hits or misses < 5:
        return said
    return f"{said}, which saved about {console.duration(hits * compiled / misses)} of work if they are like the others"


def log_of(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise NotFound.path(path, "file or folder", hint="name a `.ninja_log`, or the folder of a build")
    for place in (path, path / "b", path / "build"):
        if (place / ".ninja_log").is_file():
            return place / ".ninja_log"
    found = sorted(path.glob("s/build/.ninja_log")) or sorted(path.glob("*/.ninja_log"))
    if not found:
        message = f"there is no `.ninja_log` in `{path}`"
        hint = "name the folder that Ninja built in; a build with make or Visual Studio has no such log"
        raise NotFound(message, hint=hint)
    return found[0]


def _checks(wheel: Path) -> tuple[WheelCheck, ...]:
    place = report_beside(wheel)
    with contextlib.suppress(BadInput, NotFound):
        found = codec.from_json(files.read_bytes(place), Verification, name=f"`{place}`")
        return tuple(codec.like(WheelCheck, each, name=each.id) for each in found.checks)
    return ()


def _wheel(wheel: Path) -> WheelSummary:
    seen = inspect(wheel)
    targets: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for each in seen.gpu_code:
        sizes.update(each.sizes)
        targets.update(each.targets)
    return WheelSummary(
        name=wheel.name,
        bytes=wheel.stat().st_size,
        parts=dict(seen.parts),
        targets=dict(sorted(targets.items())),
        sizes=dict(sizes),
        state=worst(seen.findings),
        checks=_checks(wheel),
    )


def html(report: BuildSummary) -> str:
    found = report.timeline
    scale = _WIDTH / found.wall if found.wall else 0.0
    bars = [
        {
            "x": round(bar.start * scale, 2),
            "y": bar.slot * _ROW,
            "width": max(round(bar.seconds * scale, 2), 0.3),
            "kind": next(key for key, name in KINDS.items() if name == bar.kind),
            "bar": bar,
        }
        for bar in found.bars
    ]
    return page.render(
        "report.html",
        script="report.js",
        report=report,
        timeline=found,
        bars=bars,
        kinds=KINDS,
        width=_WIDTH,
        row=_ROW,
        height=max(found.slots, 1) * _ROW,
        ticks=_ticks(found.wall, scale),
    )


def _ticks(wall: float, scale: float) -> list[tuple[float, str]]:
    """Six or so round moments along the bottom."""
    steps = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
    step = next((each for each in steps if wall / each <= 8), int(wall / 8) + 1)
    return [(round(at * scale, 2), console.duration(at) if at else "0") for at in range(0, int(wall) + 1, step)]


_LIMIT = 64 * 1024 * 1024
"""Bytes that are read of one log."""
_MOST = 30
_LONGEST = 300
_OF_THE_BUILD = re2.compile(
    r"(?P<tool>nvcc|ptxas|nvlink|cudafe\+\+|fatbinary)(?: fatal| info)?\s*:?\s*[Ww]arning\s*:?\s*(?P<text>.+)"
    r"|(?P<cmake>CMake (?:Deprecation |Author )?Warning)(?P<at>.*):\s*(?P<said>[^:]*)$"
    r"|(?P<linker>(?:/\S*/)?(?:ld|ld\.gold|ld\.lld|lld|mold|collect2|link|LINK)(?:\.exe)?)\s*: warning:?\s*(?P<what>.+)"
)
_OF_A_FILE = re2.compile(r"(?i)\bwarning\b.*?(?:\[(?P<flag>-W[\w+=-]+)\]|(?P<code>[CD]\d{4})|#(?P<number>\d+-D))")


def read_warnings(logs: Iterable[Path]) -> BuildWarnings:
    """Of the logs of a build, the commonest first."""
    found: Counter[tuple[str, str]] = Counter()
    flags: Counter[str] = Counter()
    for log in logs:
        pending = ""
        for line in _lines(log):
            if pending and line.strip():
                # CMake says where in one line and what in the next.
                found[pending, line.strip()[:_LONGEST]] += 1
                pending = ""
            match = _OF_THE_BUILD.search(line) if "arning" in line else None
            if match and match["cmake"]:
                said = match["said"].strip()
                pending = "" if said else match["cmake"]
                if said:
                    found[match["cmake"], said[:_LONGEST]] += 1
            elif match:
                tool = match["tool"] or match["linker"].rpartition("/")[2]
                found[tool, (match["text"] or match["what"] or "").strip()[:_LONGEST]] += 1
            elif "arning" in line and (file := _OF_A_FILE.search(line)):
                flags[file["flag"] or file["code"] or f"#{file['number']}"] += 1
    return BuildWarnings(
        found=tuple(
            BuildWarning(tool=tool, text=text, count=count) for (tool, text), count in found.most_common(_MOST)
        ),
        files=dict(flags.most_common(_MOST)),
    )


def _lines(log: Path) -> Iterator[str]:
    with log.open("rb") as stream:
        for line in stream.read(_LIMIT).split(b"\n"):
            yield line[:LONGEST].decode("utf-8", "replace")
