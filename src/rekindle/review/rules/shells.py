"""The shell itself: slips of the reading, undefined variables, placeholders, secrets, line ends."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from rekindle.knowledge.builds.script_rules import outside
from rekindle.review.document import Dialect
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Subject

_PLACEHOLDER = re.compile(
    r"<(?!<)(?:You|your[\w -]*|path[\w -]*|user(?:name)?|version|name|dir|folder|venv\w*)>|\[[a-z]+_[a-z_]+\]\\"
    r"|(?<![\w./-])/?path[-/]to[-/]\w+|\bC:\\path\\to\\|\bYOUR_[A-Z_]+\b|\byour[-_](?:username|user|name|env|path)\b",
    re.IGNORECASE,
)
# What only speaks of it: a message, also in a helper script that is written out, and a comment.
_SAID = re.compile(
    r"(?i)(?:^|[\s'\"({@])(?:echo|printf?|log(?:ger|_\w+)?|warn\w*|info|error|die|say|msg|message|write-\w+|throw|rem|#|::)"
    r"(?=[\s(:]|#|\Z)|^\s*(?:#|cat )"
)
_SAYS = re.compile(r"(?i)\s*@?(?:echo|rem|title|::)")


def check(subject: Subject) -> Iterator[Raised]:
    yield from _slips(subject)
    yield from _undefined(subject)
    yield from _placeholders(subject)
    late = subject.trace.options.get("delayed")
    if late is not None and not re.search(r"!\w+(?::[^!\n]*)?!", subject.document.text):
        right = subject.rewritten(late, r"(?i)\s*EnableDelayedExpansion", "")
        yield raised("delayed-expansion", late, corrected=right)
    yield from _secrets(subject)
    if subject.document.dialect is Dialect.SHELL and subject.document.ends == "\r\n":
        yield raised("line-ends", 1)


def _slips(subject: Subject) -> Iterator[Raised]:
    """Faults of the reading. A command over many lines has the same one on each: it is told once."""
    found: list[Raised] = []
    last: Raised | None = None
    for slip in {(slip.rule, slip.line): slip for slip in subject.trace.slips}.values():
        goes_on = last is not None and slip.rule == last.rule and slip.line == last.line + 1
        if goes_on and slip.rule in ("continuation", "continuation-space"):
            more = {**found[-1].more, slip.line: slip.corrected or ""}
            found[-1] = msgspec.structs.replace(found[-1], more=more)
        else:
            found.append(slip)
        last = slip
    yield from found


# What base images set themselves.
_OF_IMAGES = re.compile(r"(?:CUDA|NV|NVIDIA|CUDNN|NCCL|CONDA|MAMBA|LD|LIBRARY|PYTHON|PYTORCH|VIRTUAL|ROCM|HIP)(?:_|\Z)")


def _undefined(subject: Subject) -> Iterator[Raised]:
    own = {item.name.upper() for item in subject.trace.assignments}
    plain = {re.sub(r"_", "", name): name for name in own}
    for (name, dialect), line in subject.trace.missing.items():
        upper = name.upper()
        if upper in own or upper in outside() or {upper, name} & subject.trace.asked or len(name) < 3:
            continue
        near = plain.get(re.sub(r"_", "", upper))
        near = near or next((each for each in own if len(each) > 5 and _apart(each, upper)), None)
        shown = f"%{name}%" if dialect is Dialect.BATCH else f"${name}"
        if subject.helper and not (near and len(name) > 4):
            continue
        batch = dialect is Dialect.BATCH and subject.document.dialect is Dialect.BATCH
        if near and not subject.notes:
            yield raised("undefined-near", line, shown=shown, near=near)
        elif batch and (subject.builds or subject.installs) and not _SAYS.match(subject.document.line(line)):
            yield raised("undefined", line, shown=shown)
        elif name in subject.trace.empty and not _OF_IMAGES.match(upper):
            yield raised("undefined", subject.trace.empty[name], shown=shown)


def _apart(one: str, other: str) -> bool:
    """One letter more, less or different."""
    if abs(len(one) - len(other)) > 1 or one[0] != other[0] or re.sub(r"\d", "", one) == re.sub(r"\d", "", other):
        return False
    if one.rstrip("S") == other.rstrip("S"):
        return False
    if len(one) == len(other):
        return sum(a != b for a, b in zip(one, other, strict=True)) == 1
    long, short = (one, other) if len(one) > len(other) else (other, one)
    return any(long[:index] + long[index + 1 :] == short for index in range(len(long)))


def _placeholders(subject: Subject) -> Iterator[Raised]:
    # Of notes a reader fills in what a program is given.
    items = [item for item in subject.trace.invocations if not subject.notes or item.program == "cd"]
    spans = [(item.line, item.last) for item in items] + [(item.line, item.line) for item in subject.trace.assignments]
    for number in sorted({row for first, last in spans for row in range(first, min(last, first + 60) + 1)}):
        line = subject.document.line(number)
        match = _PLACEHOLDER.search(line)
        if match is None or _SAID.search(re.split(r"&&|[;|]", line[: match.start()])[-1]):
            continue
        named = re.search(rf"(?:-n|--name|activate)[= ]+{re.escape(match[0])}", line)  # an environment like any other
        if not named and "${{" not in line and not re.search(r"[$%{]YOUR_|\bYOUR_[A-Z_]+\s*=", line):
            yield raised("placeholder", number, text=match[0].rstrip("\\"))


def _secrets(subject: Subject) -> Iterator[Raised]:
    for number, line in enumerate(subject.document.lines, 1):
        if "://" in line and re.search(r"://[^/\s:@$%{]+:[^/\s@$%{]{4,}@|://(?:gh[pousr]_|glpat-|hf_)\w{10,}@", line):
            yield raised("secret", number)
