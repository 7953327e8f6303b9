"""Notes (Markdown, plain text): the blocks that are commands, each in its own language, or commands in the prose."""

from __future__ import annotations

import re
from textwrap import dedent

from rekindle.review.document import LANGUAGES, Dialect, guessed_shell, yaml_kind
from rekindle.review.readers.kinds import read_as
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.trace import Trace

_UNSAID = frozenset({"", "text", "cmake", "plaintext", "txt"})
_COMMAND = re.compile(
    r"(?i)\s*(?:[@$>#]\s|[!%])?(?:set|call|cd|cmake|pip3?|python[\d.]*t?|py|git|export|conda|mamba|nvcc|ninja|make|rmdir|rd|sudo"
    r"|if|for|uv|pixi|poetry|pdm|micromamba|docker|where|apt|apt-get|module|\$env:\w+|-D\w+)(?:\s|=|:|$)"
)
_MOST_FILES = 40
_FILES = (
    ("toml", r"(?m)^[ \t]*dependencies = |^[ \t]*\[(?:[\w.-]+\.)?dependencies\]", Dialect.PROJECT),
    ("dockerfile", r"(?m)^[ \t]*FROM \S", Dialect.DOCKERFILE),
    ("docker", r"(?m)^[ \t]*FROM \S", Dialect.DOCKERFILE),
    ("python", r"\b(?:uv_)?pip_install\(", Dialect.PYTHON),
)
_REQUIREMENT = re.compile(r"[A-Za-z][\w.-]*(?:\[[\w,]+\])?==[\w.+!]+\Z")
_INSTALLS = re.compile(
    r"(?:sudo )?(?:\S*python[\d.]* -m |py -[\d.]+ -m |uv )?(?:pip[\d.]*|conda|mamba|micromamba|uv) (?:install|add) +\S"
    r"|(?:sudo )?docker (?:run|pull) +\S"
)
_AGAINST = re.compile(
    r"(?i)\b(?:not|don't|never|instead of|rather than|avoid|fails?|failed|error|without|unlike|after|once)\b"
)
_NOT_CODE = re.compile(r"\s*(?:Traceback \(most|File \"|diff --git|@@|[-+]{3} |\*\*\* |Running:|Produces:)")


def read_notes(trace: Trace, text: str) -> None:
    lines = text.split("\n")
    everything = "\n".join("\n".join(rows) for _, _, rows in _blocks(lines))
    windows = guessed_shell(everything) in (Dialect.BATCH, Dialect.POWERSHELL)
    files = 0
    for first, language, rows in _blocks(lines):
        if trace.full:
            return
        kind = _file_kind(language, rows)
        files += kind is not None
        if files > _MOST_FILES:
            trace.unread(first, "", f"only the first {_MOST_FILES} files in notes are read")
            return
        if kind is not None:
            read_as(trace, kind, "\n" * (first - 1) + dedent("\n".join(rows)) + "\n")
            continue
        dialect = _dialect(language, rows, windows=windows)
        if dialect is None:
            continue
        body = "\n".join(prompted(row) for row in rows) + "\n"
        body = re.sub(r"(?m)^(\s*)#", r"\1::", body) if dialect is Dialect.BATCH else body
        read_script(Recorder(trace, dialect), body, first)


def _blocks(lines: list[str]) -> list[tuple[int, str, list[str]]]:
    """Fenced blocks with the line of their first row, and indented ones that hold commands."""
    found: list[tuple[int, str, list[str]]] = []
    start: int | None = None
    language = fence = ""
    quoted = False
    indented: list[str] = []
    for row, line in enumerate(lines):
        mark = re.match(r"((?:\s*>)*)\s*(```+|~~~+)\s*\{?\.?([\w+-]*)", line)
        if start is not None:
            if mark and mark[2].startswith(fence) and not mark[3]:
                rows = lines[start + 1 : row]
                found.append(
                    (start + 2, language, [re.sub(r"^(?:\s*> ?)+", "", each) for each in rows] if quoted else rows)
                )
                start = None
            continue
        if mark and line.count("```") < 2:
            start, quoted, fence, language = row, bool(mark[1]), mark[2], mark[3].lower()
            continue
        if re.match(r"(?:\t| {4})\S", line) and _COMMAND.match(line.strip() + " ") and not line.strip().startswith("-"):
            indented.append(line.strip())
        elif indented:
            found.append((row + 1 - len(indented), "", indented))
            indented = []
    return found if any(_INSTALLS.search(row) for _, _, rows in found for row in rows) else [*found, *_in_prose(lines)]


def _in_prose(lines: list[str]) -> list[tuple[int, str, list[str]]]:
    """`pip install …` between backticks, or alone on its line; not where the sentence speaks against it."""
    found = []
    for row, line in enumerate(lines):
        spans = [span for span in re.findall(r"`([^`]+)`", line) if _INSTALLS.match(span)]
        if not spans and _INSTALLS.match(bare := re.sub(r"^[\s>*$-]+|[\s`]+$", "", line)):
            spans = [bare]
        if not _AGAINST.search(line):
            found += [(row + 1, "", [span]) for span in spans]
    return found


def _file_kind(language: str, rows: list[str]) -> Dialect | None:
    """A block that shows a file: a list of pins, a project, an environment, a Dockerfile, code that makes an image."""
    filled, text = [row.strip() for row in rows if row.strip() and row.strip()[0] != "#"], "\n".join(rows)
    if len(filled) > 3 and sum(bool(_REQUIREMENT.match(row)) for row in filled) >= 0.8 * len(filled):
        return Dialect.REQUIREMENTS
    if language in ("yaml", "yml"):
        return yaml_kind(dedent(text))
    return next((kind for name, sign, kind in _FILES if language == name and re.search(sign, text)), None)


def _dialect(language: str, rows: list[str], *, windows: bool) -> Dialect | None:
    """The shell of a block; None when it is not commands: notes also quote tracebacks, folders and patches."""
    if any(_NOT_CODE.match(row) for row in rows) or not any(_COMMAND.match(row) for row in rows):
        return None
    text = "\n".join(rows)
    said, guess = LANGUAGES.get(language), guessed_shell(text)
    if said is not None:
        return guess if language == "shell" and guess is Dialect.BATCH else said
    told = [row for row in rows if row.strip() and not row.lstrip().startswith("#")]
    # Commands are shown as Python in many notes, as `terminal`, and as a notebook takes them.
    if language not in _UNSAID and not all(_COMMAND.match(row) for row in told):
        return None
    if guess is Dialect.SHELL and windows and not re.search(r"(?m)^[ \t]*(?:export|sudo|source|\./|apt)", text):
        return Dialect.BATCH
    return guess or (Dialect.BATCH if windows else Dialect.SHELL)


def prompted(row: str) -> str:
    """`$ pip …`, `> pip …`, `C:\\x>pip …`: the prompt is not part of the command."""
    match = re.match(r"(\s*)(?:\$ |> |[!%](?=[a-z])|PS [A-Z]:[^>]*> ?|[A-Za-z]:\\[^>]*>|\([\w.-]+\) ?\$ )(?=\S)", row)
    return match[1] + " " * (match.end() - len(match[1])) + row[match.end() :] if match else row
