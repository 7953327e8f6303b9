"""What shellcheck, hadolint and actionlint say of a script, where they are installed: shown as theirs.

Rekindle's own rules are about CUDA, torch and their order; those who check a shell's or a workflow's own faults exist.
Their findings never refuse a script, and never accept one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.findings import State
from rekindle.core.programs import which
from rekindle.core.redact import redact
from rekindle.core.run import Result, call
from rekindle.review.document import Dialect, Document, load
from rekindle.review.remark import Remark
from rekindle.review.review import Review, Reviewed, shown

_SECONDS = 60.0
_GRAVE = ("error", "warning")


class _Said(msgspec.Struct, frozen=True):
    """A finding of any of the three; actionlint has neither level nor code, but a kind."""

    line: int
    message: str
    level: str = "error"
    code: int | str = ""
    kind: str = ""


class _Comments(msgspec.Struct, frozen=True):
    comments: tuple[_Said, ...]


def _plain(text: bytes) -> tuple[_Said, ...]:
    return codec.from_json(text, tuple[_Said, ...])


class Linter(NamedTuple):
    """A program, what it reads, how it is asked, and who reads its answer."""

    program: str
    dialect: Dialect
    words: tuple[str, ...]
    read: Callable[[bytes], tuple[_Said, ...]]


_LINTERS = (
    Linter(
        "shellcheck",
        Dialect.SHELL,
        ("--norc", "--format=json1"),
        lambda text: codec.from_json(text, _Comments).comments,
    ),
    Linter("hadolint", Dialect.DOCKERFILE, ("--format=json", "--no-fail", "--disable-ignore-pragma"), _plain),
    Linter("actionlint", Dialect.WORKFLOW, ("-shellcheck=", "-pyflakes=", "-format", "{{json .}}"), _plain),
)


def with_linters(answer: Review, paths: tuple[Path, ...]) -> tuple[Review, list[str]]:
    """The same answer with what they found, and a line for each script that none of them was asked about, and why."""
    pairs = [_with(one, path) for one, path in zip(answer.scripts, paths, strict=True)]
    scripts = tuple(one for one, _ in pairs)
    return msgspec.structs.replace(answer, scripts=scripts), [why for _, why in pairs if why]


def _with(one: Reviewed, path: Path) -> tuple[Reviewed, str]:
    linter = next((each for each in _LINTERS if each.dialect == one.dialect), None)
    if linter is None:
        return one, f"{one.script}: none of {', '.join(each.program for each in _LINTERS)} reads this kind of file"
    program = which(linter.program)
    if program is None:
        return one, f"{one.script}: {linter.program} is not installed, so it was not asked"
    said = call([program, *linter.words, str(path.resolve())], timeout=_SECONDS)
    try:
        found = linter.read(said.out.encode("utf-8"))
    except BadInput:
        return one, f"{one.script}: {linter.program} gave no answer{_last(said)}"
    document = load(path)
    remarks = [_remark(each, linter.program, document) for each in found if each.level in _GRAVE]
    ordered = sorted((*one.remarks, *remarks), key=lambda remark: (remark.line, -remark.state.rank))
    return msgspec.structs.replace(one, remarks=tuple(ordered)), ""


def _remark(said: _Said, program: str, document: Document) -> Remark:
    code = f"SC{said.code}" if isinstance(said.code, int) else said.code or said.kind
    return Remark(
        id=f"{program}:{code}", state=State.WARN, line=said.line, text=shown(document.line(said.line).strip()),
        found=redact(said.message), why=f"{program} says so, not Rekindle", source=f"{program} {code}",
    )  # fmt: skip


def _last(said: Result) -> str:
    lines = said.err.strip().splitlines()
    return f": {redact(lines[-1])}" if lines else ""
