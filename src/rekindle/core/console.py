"""What a person sees. Data goes to stdout, talk to stderr; readable without colour, at 80 columns, in ASCII.

`rich` is imported only by long-running live views: a short answer must start fast.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from rekindle.core.codec import to_json
from rekindle.core.findings import Finding, State

_PLAIN = str.maketrans(
    {
        "×": "x", "–": "-", "—": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=", "≠": "!=", "·": "-", "•": "*",
        "“": '"', "”": '"', "‘": "'", "’": "'", "\u00a0": " ", "✓": "ok", "✗": "x", "─": "-", "│": "|",
        "█": "#", "░": ".",
    }
)  # fmt: skip
_EINVAL = 22
_CONTROL = {code: None for code in range(32) if code not in (9, 10)} | {127: None} | dict.fromkeys(range(128, 160))
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STATE_STYLE = {State.PASS: "green", State.WARN: "yellow", State.FAIL: "red", State.UNVERIFIED: "cyan"}


def out(text: str = "") -> None:
    """One answer, or part of one, on stdout."""
    _write(sys.stdout, text)


def say(text: str = "") -> None:
    """Talk: progress, warnings, hints, on stderr."""
    _write(sys.stderr, text)


def out_json(value: Any) -> None:
    """One object. Where stdout is not UTF-8 (a Windows pipe is cp1252) everything beyond ASCII is escaped."""
    text = to_json(value)
    if (sys.stdout.encoding or "").lower().replace("-", "").replace("_", "") != "utf8":
        import json
        import re

        text = re.sub(r"[^\x00-\x7f]", lambda match: json.dumps(match.group())[1:-1], text)
    _write(sys.stdout, text)


def error(message: str, hint: str | None) -> None:
    say(f"{paint('error:', 'red', sys.stderr)} {message}")
    if hint:
        say()
        say(f"{paint('hint:', 'cyan', sys.stderr)} {hint}")


def clean(text: str) -> str:
    """Foreign text (a log line, a file name, a program's output) without control characters that a terminal obeys."""
    return text.translate(_CONTROL)


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if colourful(stream or sys.stdout) else text


def colourful(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    if environ.get("FORCE_COLOR"):
        return True
    # A classic Windows console shows escape codes as garbage unless a host that understands them says so.
    knows_ansi = os.name != "nt" or any(environ.get(name) for name in ("WT_SESSION", "ANSICON", "ConEmuANSI", "TERM"))
    return knows_ansi and stream.isatty()


def width() -> int:
    """The columns to fill: the terminal's, within reason; 80 when there is none."""
    columns = os.environ.get("COLUMNS", "")
    if not columns.isdigit():
        try:
            columns = str(os.get_terminal_size(sys.__stdout__.fileno()).columns) if sys.__stdout__ else "80"
        except (OSError, ValueError):
            columns = "80"
    return max(60, min(int(columns), 120))


def wrap(text: str, *, indent: str = "", first: str | None = None, columns: int | None = None) -> str:
    return "\n".join(
        textwrap.wrap(
            text,
            columns or width(),
            initial_indent=indent if first is None else first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def table(
    rows: Iterable[Sequence[str]], *, head: Sequence[str] = (), indent: str = "", columns: int | None = None
) -> str:
    """Left-aligned columns; the last one wraps so that the whole stays within the width."""
    body = [tuple(row) for row in rows]
    every = [tuple(head), *body] if head else body
    if not every:
        return ""
    count = max(len(row) for row in every)
    widths = [max((len(row[i]) for row in every if i < len(row)), default=0) for i in range(count)]
    room = (columns or width()) - len(indent) - sum(widths[:-1]) - 2 * (count - 1)
    last = max(room, 20)
    wrapped = [
        (textwrap.wrap(row[-1], last, break_long_words=False, break_on_hyphens=False) or [""])
        if len(row) == count
        else [""]
        for row in every
    ]
    widths[-1] = max(len(line) for tail in wrapped for line in tail)
    lines: list[str] = []
    for number, (row, tail) in enumerate(zip(every, wrapped, strict=True)):
        cells = [*row, *[""] * (count - len(row))]
        lead = indent + "".join(cell.ljust(widths[i]) + "  " for i, cell in enumerate(cells[:-1]))
        lines.append((lead + tail[0]).rstrip())
        lines += [" " * len(lead) + more for more in tail[1:]]
        if head and number == 0:
            lines.append(indent + "  ".join("-" * each for each in widths))
    return "\n".join(lines)


def finding(item: Finding, *, indent: str = "") -> str:
    """A finding as a person reads it: state and fact on the first line, why and fix below."""
    label = paint(f"{item.state.value:<10}", _STATE_STYLE[item.state])
    lines = [f"{indent}{label} {wrap(item.found, indent=indent + ' ' * 11).strip()}"]
    if item.state is not State.PASS:
        if item.why:
            lines.append(wrap(item.why, indent=indent + " " * 11))
        if item.fix:
            lines.append(wrap(f"fix: {item.fix.text}", indent=indent + " " * 11))
            lines += [f"{indent}{' ' * 13}{command}" for command in item.fix.commands]
    return "\n".join(lines)


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "ascii"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        text = text.translate(_PLAIN).encode("ascii" if encoding == "ascii" else encoding, "replace").decode(encoding)
    try:
        stream.write(text + "\n")
        stream.flush()
    except OSError as error:
        # Windows says "invalid argument" of a pipe that nobody reads any more.
        if not isinstance(error, BrokenPipeError) and not (os.name == "nt" and error.errno == _EINVAL):
            raise
        # `rekindle … | head` is no error. Point stdout at nothing so that the interpreter's own flush stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise SystemExit(0) from None
