"""A build script as statements: continuation lines joined, comments set apart, line numbers kept.

Reads batch, PowerShell and shell, and the fenced blocks of a document: people keep their build commands in notes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import msgspec

from rekindle.core.console import clean
from rekindle.core.errors import BadInput, NotFound

_LARGEST = 4 << 20


class Dialect(str, Enum):
    BATCH = "batch"
    POWERSHELL = "powershell"
    SHELL = "shell"

    @property
    def continues(self) -> str:
        return {Dialect.BATCH: "^", Dialect.POWERSHELL: "`", Dialect.SHELL: "\\"}[self]


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One command, over one line or several. `wrong` are the lines that end in another shell's continuation sign."""

    line: int
    lines: tuple[str, ...]
    text: str
    comment: bool = False
    wrong: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        return self.line + len(self.lines) - 1

    def line_of(self, part: str) -> int:
        """The physical line on which a part of the statement stands."""
        return next((self.line + index for index, line in enumerate(self.lines) if part in line), self.line)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """`lines` is the whole file; `statements` what of it is a script."""

    name: str
    dialect: Dialect
    lines: tuple[str, ...]
    statements: tuple[Statement, ...]
    ends: str = "\n"

    @property
    def commands(self) -> tuple[Statement, ...]:
        return tuple(item for item in self.statements if not item.comment)


def load(path: Path) -> Script:
    if str(path) == "-":
        return read(_decoded(sys.stdin.buffer.read(_LARGEST)), name="standard input")
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        message = f"there is no file `{path}`"
        raise NotFound(message, hint="check the path; quote it if it has spaces") from error
    except OSError as error:
        message = f"cannot read `{path}`: {error.strerror or error}"
        raise NotFound(message, hint="check the path and the rights of the file") from error
    if len(data) > _LARGEST or (b"\0" in data and not data.startswith((b"\xff\xfe", b"\xfe\xff"))):
        message = f"`{path}` is no script"
        raise BadInput(message, hint="review takes .bat, .cmd, .ps1 and .sh files, and documents with such blocks")
    return read(_decoded(data), name=str(path))


def read(text: str, *, name: str = "") -> Script:
    ends = "\r\n" if "\r\n" in text else "\n"
    lines = tuple(clean(line) for line in text.replace("\r\n", "\n").split("\n"))
    if lines and not lines[-1]:
        lines = lines[:-1]
    fenced = _fenced(lines)
    dialect = _dialect(name, lines, fenced)
    chosen = fenced or [(1, lines)]
    statements = [item for first, block in chosen for item in _statements(first, block, dialect)]
    return Script(name=name, dialect=dialect, lines=lines, statements=tuple(statements), ends=ends)


def words(text: str, dialect: Dialect) -> list[str]:
    """The words of a command, quotes taken off; what is left open at the end counts as closed."""
    found: list[str] = []
    word, quote, inside = "", "", False
    for letter in text:
        if quote:
            if letter == quote:
                quote = ""
            else:
                word += letter
        elif letter == '"' or (letter == "'" and dialect is not Dialect.BATCH):
            quote, inside = letter, True
        elif letter.isspace():
            if word or inside:
                found.append(word)
            word, inside = "", False
        else:
            word += letter
    return [*found, word] if word or inside else found


def open_quote(text: str, dialect: Dialect) -> bool:
    quote = ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter == '"' or (letter == "'" and dialect is not Dialect.BATCH):
            if letter == '"' and index and text[index - 1] == "\\" and dialect is Dialect.SHELL:
                continue
            quote = letter
    return bool(quote)


def _decoded(data: bytes) -> str:
    for encoding in ("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", "replace")


_CODE = frozenset(
    {"bat", "batch", "cmd", "cmake", "powershell", "ps1", "pwsh", "sh", "bash", "shell", "console", "text", ""}
)


def _fenced(lines: tuple[str, ...]) -> list[tuple[int, tuple[str, ...]]]:
    blocks: list[tuple[int, tuple[str, ...]]] = []
    start: int | None = None
    for number, line in enumerate(lines, 1):
        fence = re.match(r"\s*```+\s*([\w+-]*)", line)
        if not fence:
            continue
        if start is None:
            start = number if fence[1].lower() in _CODE else -1
        else:
            if start > 0 and _is_script(lines[start : number - 1]):
                blocks.append((start + 1, lines[start : number - 1]))
            start = None
    return blocks


def _is_script(block: tuple[str, ...]) -> bool:
    """Notes also quote tracebacks, folders and patches."""
    if any(re.match(r"\s*(?:Traceback \(most|File \"|diff --git|@@ |[-+]{3} )", line) for line in block):
        return False
    return any(_COMMAND.match(line) for line in block)


_COMMAND = re.compile(
    r"(?i)\s*(?:[@$>]\s?)?(?:set|call|cd|cmake|pip3?|python3?|py|git|export|conda|nvcc|ninja|make|rmdir|rd|sudo|if|for|echo"
    r"|\$env:\w+|-D\w+|[\w.-]+==[\d.]+|\w+=\S)(?:\b|\s|=|$)"
)


def _dialect(name: str, lines: tuple[str, ...], fenced: list[tuple[int, tuple[str, ...]]]) -> Dialect:
    suffix = Path(name).suffix.lower()
    known = {".bat": Dialect.BATCH, ".cmd": Dialect.BATCH, ".ps1": Dialect.POWERSHELL, ".sh": Dialect.SHELL}
    if suffix in known:
        return known[suffix]
    text = "\n".join("\n".join(block) for _, block in fenced) if fenced else "\n".join(lines)
    if re.search(r"(?i)\$env:|^\s*\$\w+\s*=", text, re.MULTILINE):
        return Dialect.POWERSHELL
    if re.search(r"(?im)^\s*(?:@?echo off|set \"?\w+=|rem |call )|%\w+%|[A-Z]:[\\/]|\.bat\b", text):
        return Dialect.BATCH
    return Dialect.SHELL


def _comment(line: str, dialect: Dialect) -> bool:
    bare = line.strip()
    if dialect is Dialect.BATCH:
        return bool(re.match(r"(?i)@?rem(?:\s|$)|::", bare))
    return bare.startswith("#")


_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_ENDS_HERE = re.compile(r"(?i)\s*@?(?:exit(?:\s|$)|goto\s+:?eof\b)")


def _without_data(lines: tuple[str, ...], dialect: Dialect) -> tuple[str, ...]:
    """The same lines with what the shell never reads as a command left blank: texts that a script carries with it."""
    if dialect is Dialect.BATCH:
        last = max((number for number, line in enumerate(lines) if _ENDS_HERE.match(line)), default=len(lines))
        beyond = lines[last + 1 :]
        reached = any(re.match(r"\s*:\w", line) for line in beyond)
        return lines if reached else (*lines[: last + 1], *("" for _ in beyond))
    kept: list[str] = []
    until = ""
    for line in lines:
        if until:
            over = line.strip() == until if dialect is Dialect.SHELL else line.startswith(until)
            kept.append("")
            until = "" if over else until
            continue
        kept.append(line)
        if dialect is Dialect.SHELL and not _comment(line, dialect):
            begun = _HEREDOC.search(line)
            until = begun[2] if begun else ""
        elif dialect is Dialect.POWERSHELL and line.rstrip().endswith(("@'", '@"')):
            until = line.rstrip()[-1] + "@"
    return tuple(kept)


def _statements(first: int, lines: tuple[str, ...], dialect: Dialect) -> Iterator[Statement]:
    lines = _without_data(lines, dialect)
    index = 0
    while index < len(lines):
        start = index
        parts: list[str] = []
        wrong: list[int] = []
        while True:
            line = lines[index].rstrip()
            sign = line[-1:] if not _comment(line, dialect) or parts else ""
            more = index + 1 < len(lines) and bool(lines[index + 1].strip())
            if sign == dialect.continues and not line.endswith(dialect.continues * 2) and more:
                parts.append(line[:-1])
            elif sign in ("\\", "^", "`") and more and lines[index + 1].lstrip().startswith(("-", "/")):
                # Another shell's sign: it continues nothing here, but it is plain what was meant.
                parts.append(line[:-1])
                wrong.append(first + index)
            else:
                parts.append(line)
                break
            index += 1
        text = " ".join(part.strip() for part in parts).strip()
        if text:
            comment = _comment(parts[0], dialect)
            whole = tuple(lines[start : index + 1])
            yield Statement(line=first + start, lines=whole, text=text, comment=comment, wrong=tuple(wrong))
        index += 1
