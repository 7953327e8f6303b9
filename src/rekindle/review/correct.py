"""`review --fix`: the script with every correction that is certain, and the difference to show first."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core.errors import ChecksFailed
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Capability
from rekindle.review.document import Document, load, read
from rekindle.review.reading import trace_of
from rekindle.review.review import Reviewed, every, review_script, shown
from rekindle.review.subject import Subject

_ROUNDS = 8


class Corrected(msgspec.Struct, frozen=True, kw_only=True):
    """`text` has the line ends of the file; `left` is how many wrong lines a person has to decide."""

    text: str
    encoding: str
    changed: int
    difference: str
    left: int


def corrected(
    path: Path,
    *,
    gpus: Sequence[Capability] = (),
    torch: Version | None = None,
    system: str | None = None,
) -> Corrected:
    """Corrects until nothing certain is left: one line may have several faults. No round may add a finding."""
    original = load(path)
    document = original
    before = review_script(document, gpus=gpus, torch=torch, system=system)
    known = _ids(before)
    after = before
    for _ in range(_ROUNDS):
        again = read(_round(document, gpus, torch, system), name=document.name, encoding=document.encoding)
        if again.lines == document.lines:
            break
        after = review_script(again, gpus=gpus, torch=torch, system=system)
        new = _ids(after) - known
        if new:
            message = f"the corrected script would have a new finding ({', '.join(sorted(new))}); nothing was written"
            raise ChecksFailed(message, hint="correct the lines by hand, as the review shows them")
        document = again
    ends = original.ends
    text = ends.join(document.lines) + ends
    old, new_lines = [shown(line) for line in original.lines], [shown(line) for line in document.lines]
    difference = "\n".join(difflib.unified_diff(old, new_lines, str(path), f"{path} (corrected)", lineterm="", n=1))
    changed = sum(1 for line in difference.splitlines() if line.startswith("+") and not line.startswith("+++"))
    removed = sum(1 for line in difference.splitlines() if line.startswith("-") and not line.startswith("---"))
    left = sum(remark.state is State.FAIL for remark in after.remarks)
    return Corrected(
        text=text, encoding=original.encoding, changed=max(changed, removed), difference=difference, left=left
    )


def write(result: Corrected, output: Path) -> None:
    """As the file was: its encoding and its line ends."""
    encoding = {"utf-8-sig": "utf-8-sig", "utf-16": "utf-16"}.get(result.encoding, result.encoding)
    output.write_bytes(result.text.encode(encoding, "strict"))


def _round(document: Document, gpus: Sequence[Capability], torch: Version | None, system: str | None) -> str:
    subject = Subject(document, trace_of(document), gpus=gpus, torch=torch, system=system)
    lines: list[str | None] = list(document.lines)
    touched: set[int] = set()
    for found in every(subject):
        index = found.line - 1
        if found.corrected is None or not found.certain or index in touched or not 0 <= index < len(lines):
            continue
        touched.add(index)
        lines[index] = None if found.corrected == "" else found.corrected
        for number, text in found.more.items():
            if number - 1 not in touched and 0 < number <= len(lines):
                touched.add(number - 1)
                lines[number - 1] = text
    for item in subject.trace.invocations:
        _close(lines, item.line - 1, item.last - 1)
    return "\n".join(line for line in lines if line is not None) + "\n"


def _close(lines: list[str | None], first: int, last: int) -> None:
    """When the last line of a command went, the one before must not continue into nothing."""
    if last >= len(lines) or last < 0 or lines[last] is not None:
        return
    for index in range(last, first - 1, -1):
        line = lines[index]
        if line is not None:
            lines[index] = line.rstrip().rstrip("^`\\").rstrip()
            return


def _ids(answer: Reviewed) -> set[str]:
    return {f"{remark.id}: {remark.found}" for remark in answer.remarks if remark.state is not State.PASS}
