"""`review --fix`: the script with every correction that is certain, and the difference to show first."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core import files
from rekindle.core.findings import State
from rekindle.review.document import Document, load, read
from rekindle.review.question import Asked
from rekindle.review.remark import Raised
from rekindle.review.review import Reviewed, every, review_script, shown, trace_of
from rekindle.review.subject import Subject

_ROUNDS = 24
_EACH = 40


class Corrected(msgspec.Struct, frozen=True, kw_only=True):
    """`text` has the line ends of the file."""

    text: str
    encoding: str
    difference: str
    refused: dict[int, str] = {}
    """Lines whose correction was not made, and the fault that it would bring, both with the lines of the file."""


def corrected(path: Path, asked: Asked | None = None) -> Corrected:
    """Corrects until nothing certain is left: one line may have several faults. No round may add a finding."""
    original = load(path)
    asked = asked or Asked()
    document = original
    known = _faults(review_script(document, asked))
    refused: dict[int, str] = {}
    for _ in range(_ROUNDS):
        again, refused = _better(document, asked, known, original)
        if again is None:
            break
        document = again
    ends = original.ends
    text = ends.join(document.lines) + ends
    old, new_lines = [shown(line) for line in original.lines], [shown(line) for line in document.lines]
    difference = "\n".join(difflib.unified_diff(old, new_lines, str(path), f"{path} (corrected)", lineterm="", n=1))
    refused = dict(sorted(refused.items()))
    return Corrected(text=text, encoding=original.encoding, difference=difference, refused=refused)


def write(result: Corrected, output: Path) -> None:
    """As the file was: its encoding, its line ends and its mode. A link in its place is replaced, not followed."""
    there = output.is_file() and not files.is_link(output)
    mode = stat.S_IMODE(output.stat().st_mode) if there else None
    files.write_bytes(output, result.text.encode(result.encoding, "strict"))
    if mode is not None:
        output.chmod(mode)


def _better(
    document: Document, asked: Asked, known: dict[str, tuple[int, str]], original: Document
) -> tuple[Document | None, dict[int, str]]:
    """The script with one round of corrections; None when each one left brings a new finding, which is named then."""
    subject = Subject(document, trace_of(document), asked)
    certain = [found for found in every(subject) if found.corrected is not None and found.certain]
    certain = [found for found in certain if found.line not in subject.trace.opened]  # a fault of another file
    whole = _applied(subject, certain)
    if whole.lines == document.lines:
        return None, {}
    if not _faults(review_script(whole, asked)).keys() - known:
        return whole, {}
    refused: dict[int, str] = {}
    for found in certain[:_EACH]:
        alone = _applied(subject, [found])
        brought = [each for name, each in _faults(review_script(alone, asked)).items() if name not in known]
        if not brought and alone.lines != document.lines:
            return alone, {}
        for line, fault in brought[:1]:
            refused[_line_of(original, document, found.line)] = f"on line {_line_of(original, alone, line)}: {fault}"
    return None, refused


def _line_of(original: Document, after: Document, line: int) -> int:
    """Where a line of the changed script stands in the file: a correction may have removed lines above it."""
    parts = difflib.SequenceMatcher(None, original.lines, after.lines, autojunk=False).get_opcodes()
    here = (min(first + line - begin, last) for _, first, last, begin, end in parts if begin < line <= end)
    return next(here, line)


def _applied(subject: Subject, corrections: Sequence[Raised]) -> Document:
    document = subject.document
    lines: list[str | None] = list(document.lines)
    touched: set[int] = set()
    for found in corrections:
        for number, text in ((found.line, found.corrected or ""), *found.more.items()):
            if number - 1 not in touched and 0 < number <= len(lines):
                touched.add(number - 1)
                lines[number - 1] = text or None
    for item in subject.trace.invocations:
        _close(lines, item.line - 1, item.last - 1)
    text = "\n".join(line for line in lines if line is not None) + "\n"
    return read(text, name=document.name, encoding=document.encoding, folder=document.folder)


def _close(lines: list[str | None], first: int, last: int) -> None:
    """When the last line of a command went, the one before must not continue into nothing."""
    if last >= len(lines) or last < 0 or lines[last] is not None:
        return
    for index in range(last, first - 1, -1):
        line = lines[index]
        if line is not None:
            lines[index] = line.rstrip().rstrip("^`\\").rstrip()
            return


def _faults(answer: Reviewed) -> dict[str, tuple[int, str]]:
    """What a script has against it, worst first, and how much of it cannot be read: neither may grow."""
    worst = sorted(answer.remarks, key=lambda each: -each.state.rank)
    found = {f"{each.id}: {each.found}": (each.line, each.found) for each in worst if each.state is not State.PASS}
    return found | {f"unread {at}": (each.line, each.why) for at, each in enumerate(answer.not_understood)}
