"""Whether the work behind a log went well, when no cause is known: success needs a sign of its own.

Silence is not success. A log that shows neither a known cause nor a line that says the work is done is one in which
no failure was recognised, and the lines that look most like one are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import msgspec

from rekindle.core.regex import re2
from rekindle.diagnose.answer import LogOutcome
from rekindle.diagnose.events import Event, LineKind

_SHOWN = 10
_SUSPICIOUS = 7
# How much more a line counts that a tool itself calls an error.
_PLAIN = 4
# How plainly a line says that something is wrong, the plainest first.
_SIGNS: tuple[tuple[int, str], ...] = (
    (9, r"(?i)\b(?:fatal|panic(?:ked)?|core dumped|illegal instruction|segmentation fault|SIG[A-Z]{3,4})\b"),
    (8, r"(?i)\b(?:killed|aborted|terminated|unsupported|mismatch|exception|cannot|can't|could not|couldn't|unable)\b"),
    (7, r"(?i)\b(?:error|failed|failure|fails|refused|denied|invalid|corrupt(?:ed)?|missing)\b|ERR!|^E: "),
    (6, r"(?i)\bnot (?:found|recognized|supported|available|compatible|installed|initialized|loaded|responding)\b"),
    (5, r"(?i)\bno such\b|\bwill ignore\b|\bignoring\b|\btoo (?:old|new|long|many)\b|\btimed? ?out\b|\bstopped\b"),
    (4, r"(?i)\bFalse\b|\bNone\b|\bunknown\b|\bwarn(?:ing)?\b"),
)
_PATTERNS = tuple((score, re2.compile(pattern)) for score, pattern in _SIGNS)
# `[12/12]`: the last step of ninja, or of a progress bar that came to its end.
_LAST_STEP = re2.compile(r"^\[(\d{1,9})/(\d{1,9})\] ")

# What nvidia-smi prints, with its prompt and its date: a driver that runs is no other work that went well.
_SMI = "nvidia-smi"
_OF_SMI = re2.compile(r"^\s*[|+]|\bnvidia-smi\b|^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d ")
# A step that reports of itself, as a batch file does.
_FAILED = re2.compile(r"(?i)\b(?:failed|cannot find the (?:path|file))\b[\w .]{0,20}\W*$")
# An exception in the person's words, or a part that did not start.
_EXCEPTION = re2.compile(r"\b[A-Z]\w*(?:Error|Exception): \S|\bbackend failed to initialize\b")
NO_SIGN = "Nothing here looks like a failure"
CUT = "The log ends inside a traceback: the line with the error is missing"


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said without a cause. `lines` are the ones that look most like a failure, or the last of the log."""

    outcome: LogOutcome
    summary: str
    lines: tuple[Event, ...] = ()


def judge(events: Sequence[Event]) -> Ending:
    spoken = [event for event in events if event.text]
    if not spoken:
        return Ending(outcome=LogOutcome.UNKNOWN, summary="The log is empty: run it again with `... > log.txt 2>&1`")
    errors = [event for event in spoken if event.kind is LineKind.ERROR]
    # PowerShell reports whatever a program writes on stderr as an error of its own.
    reports = [each for each in spoken if each.kind is LineKind.WRAPPER and each.hit and each.tool != "powershell"]
    last = max((event.number for event in (*errors, *reports)), default=0)
    done = _done(spoken, errors)
    well = not complained(spoken)
    if well and done > last and not _doubted(spoken, done):
        told = ", the text itself says" if _settled(spoken) == done else ""
        return Ending(outcome=LogOutcome.NONE, summary=f"Nothing here failed{told}")
    if well and not done and not last and _goes_on(spoken):
        return Ending(outcome=LogOutcome.NONE, summary="Nothing has failed so far; the log ends before the work does")
    cut = _cut(spoken)
    if cut and not any(event.tool == "python" for event in errors):
        return Ending(outcome=LogOutcome.UNKNOWN, summary=CUT, lines=tuple(cut))
    alike = tuple(_most_like_a_failure(spoken, [*errors, *reports]))
    if alike:
        return Ending(outcome=LogOutcome.UNKNOWN, summary="No failure that I recognise", lines=alike)
    # A program's last words.
    said = [event for event in spoken if not _is_prose(event) and event.text.strip("`")]
    return Ending(outcome=LogOutcome.UNKNOWN, summary=NO_SIGN, lines=tuple(said[-3:]))


def _doubted(spoken: Sequence[Event], done: int) -> bool:
    """After the last sign of success a line says plainly that something failed; or an exception is told anywhere."""
    plain = [event for event in spoken if event.kind is LineKind.TEXT]
    if _settled(spoken) != done and any(_EXCEPTION.search(event.text) for event in plain):
        return True
    return any(_FAILED.search(event.text) and not _is_prose(event) for event in plain if event.number > done)


def _cut(spoken: Sequence[Event]) -> list[Event]:
    """The last frame of a traceback that ends the log without its error, which stands at the margin."""
    if spoken[-1].raw.lstrip().startswith("│") and any("Traceback (most recent call last) ─" in e.raw for e in spoken):
        return list(spoken[-3:])
    begun = max((at for at, event in enumerate(spoken) if event.text.startswith("Traceback (most")), default=None)
    frames = list(spoken[begun + 1 :]) if begun is not None else []
    margin = len(spoken[begun].raw) - len(spoken[begun].raw.lstrip()) if begun is not None else 0
    if not frames or any(len(event.raw) - len(event.raw.lstrip()) <= margin for event in frames):
        return []
    last = max((at for at, event in enumerate(frames) if event.text.startswith("File ")), default=0)
    return frames[last:]


def complained(events: Sequence[Event]) -> bool:
    """A person who says so last is believed; a program without a GPU is, unless something was made afterwards."""
    made = max(
        (event.number for event in events if event.kind is LineKind.SUCCESS and event.tool not in ("any", _SMI)),
        default=0,
    )
    settled = _settled(events)
    heard = (event for event in events if event.kind is LineKind.COMPLAINT)
    return any(event.number > (settled if event.tool == "person" else made) for event in heard)


def _settled(events: Sequence[Event]) -> int:
    """The last line in which a person says that it works; 0 where none does."""
    every = (event.number for event in events if event.kind is LineKind.SUCCESS and event.tool == "person")
    return max(every, default=0)


def _done(spoken: Sequence[Event], errors: Sequence[Event]) -> int:
    """The last line that says that the work is done; 0 where none does."""
    # CMake writes its files even after an error of its own.
    halfway = any(event.tool == "cmake" for event in errors)
    hollow = {"cmake"} if halfway else set()
    if not all(_OF_SMI.search(event.raw) for event in spoken):
        hollow.add(_SMI)
    signs = (event for event in spoken if event.kind is LineKind.SUCCESS and event.tool not in hollow)
    done = max((event.number for event in signs), default=0)
    steps = [step for event in spoken[-6:] if (step := _LAST_STEP.match(event.text))]
    return spoken[-1].number if not done and steps and steps[-1].group(1) == steps[-1].group(2) else done


def _goes_on(spoken: Sequence[Event]) -> bool:
    """A step that follows another says that the one before it was done, unless what comes last looks like a failure."""
    going = [event.number for event in spoken if event.kind is LineKind.GOING]
    steps = [event.number for event in spoken if event.kind in (LineKind.PROGRESS, LineKind.COMMAND)]
    probes = [event.number for event in spoken if event.kind is LineKind.PROBE and event.tool == "setuptools"]
    signs = going or (steps if len(steps) > 1 else []) or probes
    if not signs:
        return False
    after = signs[-1] if going else 0
    plain = (event for event in spoken if event.kind is LineKind.TEXT and event.number > after)
    # What ends like a statement is a line of source that a compiler shows.
    return not any(_looks(event) >= _SUSPICIOUS for event in plain if not event.text.endswith((";", "{", "}")))


def _most_like_a_failure(spoken: Sequence[Event], failures: Sequence[Event]) -> list[Event]:
    """In the order of the log; none where nothing stands out."""
    plain = {event.number for event in failures}
    silent = (LineKind.QUOTE, LineKind.COMMAND, LineKind.PROGRESS, LineKind.SUCCESS, LineKind.GOING)
    # What a configure asked, and what was warned of, is shown only where nothing says plainly that it failed.
    lesser = (LineKind.PROBE, LineKind.WARNING) if plain else ()
    scored: list[tuple[int, Event]] = []
    errors = any(event.kind is LineKind.ERROR for event in failures)
    for event in spoken:
        # Where a program says what is wrong, what the person says of it is no evidence.
        told = errors and event.number not in plain and _is_prose(event)
        score = 0 if told or event.kind in (*silent, *lesser) else _looks(event)
        if event.kind is LineKind.WRAPPER and not errors and not event.text.startswith(_NO_NEWS):
            score = max(score, _SUSPICIOUS)
        if score:
            # CMake says what is wrong in the two lines below its heading.
            under = event.kind is LineKind.TEXT and not plain.isdisjoint((event.number - 1, event.number - 2))
            scored.append((score + _PLAIN * (event.number in plain) + _PLAIN * under, event))
    scored = scored or [(1, event) for event in failures if not event.text.startswith(_NO_NEWS)]
    scored.sort(key=lambda pair: (-pair[0], pair[1].number))
    return sorted((event for _, event in scored[:_SHOWN]), key=lambda event: event.number)


_NO_NEWS = ("Traceback ", "During ", "The above")
# A title, a sentence that leads to a message, and sentences of somebody who asks.
_PROSE = re2.compile(
    r"(?i)^\[(?:issue|bug|question|help|feature)[^\]]{0,20}\]"
    r"|\b(?:error|message|this|following|log|output|below) ?:\s*$"
    r"|^(?:I|We|My|It|Is|How|What|Why|When|Can|Does|Do|Any|Please|Hi|Hello|Thanks?)\b.{12,}"
    r"|\b(?:I|I'm|I've|my|please|anyone|appreciate)\b.{0,200}[.?!]\s*$|\?\s*$"
)


def _is_prose(event: Event) -> bool:
    """The words of the person, not of a program."""
    return event.kind is LineKind.COMPLAINT or (event.kind is LineKind.TEXT and bool(_PROSE.search(event.text)))


def _looks(event: Event) -> int:
    found = max((score for score, pattern in _PATTERNS if pattern.search(event.text)), default=0)
    if event.kind is LineKind.COMPLAINT or (event.kind is LineKind.ERROR and event.tool == "python"):
        return max(found, _SUSPICIOUS)
    return max(found - 3, 1) if found and event.kind in (LineKind.WARNING, LineKind.PROBE) else found


_ELSEWHERE = {
    "cluster": "`sacct -j JOB --format=JobID,State,ExitCode,ReqMem,MaxRSS`: how the scheduler saw it end",
    "docker": "`docker logs NAME`, and `docker run --rm --gpus all ubuntu nvidia-smi`: whether one gets the card",
    "jetson": "`cat /etc/nv_tegra_release`: which JetPack it is",
}


def next_steps(kinds: Set[str], signs: Iterable[str]) -> tuple[str, ...]:
    """What would tell more where nothing is recognised. `kinds` are the things that the log names, `signs` where."""
    steps = ["run it again into a file with all of its output (`... > log.txt 2>&1`), one job at a time for a build"]
    if not {"card", "driver"} <= kinds:
        steps.append("`rekindle doctor` where it failed: card, driver, toolkit and torch")
    if kinds & {"torch", "package"}:
        steps.append("`rekindle audit` in the environment: compiled modules that cannot run on the card")
    steps += [_ELSEWHERE[sign] for sign in signs if sign in _ELSEWHERE]
    return (*steps, "post the lines above with `--markdown`, or give `--json` to an assistant")
