"""What a person sees. Data goes to stdout, talk to stderr; readable without colour, at 80 columns, in ASCII.

Everything that is written goes through `_write`, and there it is made safe: no control characters and no bidirectional
overrides that a terminal obeys, no passwords or tokens. Whoever prints a name out of a foreign file need not think of
it. `rich` is imported only by long-running live views: a short answer must start fast.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from rekindle.core.codec import to_builtins, to_json
from rekindle.core.errors import ErrorReport, NotWritable
from rekindle.core.files import describe_error
from rekindle.core.findings import Finding, State
from rekindle.core.pattern import late
from rekindle.core.redact import UNSAFE, secrets, without_secrets
from rekindle.core.redact import clean as clean

_PLAIN = str.maketrans(
    {
        "×": "x", "–": "-", "—": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=", "≠": "!=", "·": "-", "•": "*",
        "“": '"', "”": '"', "‘": "'", "’": "'", "\u00a0": " ", "✓": "ok", "✗": "x", "─": "-", "│": "|",
        "█": "#", "░": ".",
    }
)  # fmt: skip
# Colour is marked by a word that no foreign text can know, and becomes an escape code as the last thing.
_MARK = f"\x0e{os.urandom(8).hex()}:"
_MARKS = late(re.escape(_MARK) + r"(\d{1,2});")
_IN_BACKTICKS = late(r"`[^`\n]+`")
_KEPT_SPACE = "\x1f"
_BEYOND_ASCII = late(r"[^\x09\x0a\x20-\x7e]")
_PATIENCE = 2.0
_answered = _begun = False
_stirred = 0.0
_waited_for = ""
_quiet = _verbose = _plain = False
_own: Callable[[str], str] | None = None
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STATE_STYLE = {State.PASS: "green", State.WARN: "yellow", State.FAIL: "red", State.UNVERIFIED: "cyan"}


def out(text: str = "") -> None:
    """One answer, or part of one, on stdout."""
    _write(sys.stdout, text, answer=True)


def say(text: str = "") -> None:
    """Talk: progress, warnings, hints, on stderr. `--quiet` leaves it out."""
    if not _quiet:
        _write(sys.stderr, text, answer=False)


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """What a command waits for, said once nothing else was for two seconds: nobody takes silence for the end.

    The same again (the next part of a file) has more time before it is repeated.
    """
    if not _begun:
        yield
        return
    import threading

    over = threading.Event()

    def tell() -> None:
        global _waited_for
        left = _PATIENCE
        while not over.wait(left):
            left = _stirred + _PATIENCE * (10 if text == _waited_for else 1) - time.monotonic()
            if left <= 0:
                _waited_for = text
                say(text)
                return

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def stirred() -> None:
    """Something has just been shown."""
    global _stirred
    _stirred = time.monotonic()


def detail(text: str) -> None:
    """What was done to find the answer, for `--verbose`: programs that were run, files that were fetched."""
    if _verbose:
        _write(sys.stderr, text, answer=False)


def talk(*, quiet: bool | None = None, verbose: bool | None = None, plain: bool | None = None) -> None:
    """How much is said on stderr, and whether in colour. None: as before."""
    global _quiet, _verbose, _plain
    _quiet = _quiet if quiet is None else quiet
    _verbose = _verbose if verbose is None else verbose
    _plain = _plain if plain is None else plain


def pasted_here(own: Callable[[str], str] | None) -> None:
    """How a text that names our commands is written so that they can be pasted here; None: as it is."""
    global _own
    _own = own


def silent() -> bool:
    return _quiet


def out_json(value: Any) -> None:
    """One object. What a terminal obeys is escaped; beyond ASCII everything where stdout is not UTF-8."""
    import json

    global _answered
    text = to_json(without_secrets(to_builtins(value)))
    known = (sys.stdout.encoding if sys.stdout else None) or ""
    unsafe = UNSAFE if known.lower().replace("-", "").replace("_", "") == "utf8" else _BEYOND_ASCII
    _emit(sys.stdout, unsafe.sub(lambda match: json.dumps(match.group())[1:-1], text), answer=True)
    _answered = True


def error(message: str, hint: str | None, *, code: int | None = None) -> None:
    """On stderr; with `code` also as an object on stdout, for whoever asked for JSON and has no other answer yet."""
    if code is not None and not _answered:
        out_json(ErrorReport(code=code, message=message, hint=hint))
    said = sentence(f"error: {message}", stream=sys.stderr).replace("error:", paint("error:", "red", sys.stderr), 1)
    if hint:
        told = sentence(f"hint: {hint}", stream=sys.stderr).replace("hint:", paint("hint:", "cyan", sys.stderr), 1)
        said += f"\n\n{told}"
    _write(sys.stderr, said, answer=False)


def begin() -> None:
    """A new command in this process: nothing has been answered yet, and it says as much as any other."""
    global _answered, _begun
    _answered, _begun = False, True
    talk(quiet=False, verbose=False, plain=False)


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text in a style, where the stream shows colour. Only for text that goes to `out` or `say`."""
    if (stream or sys.stdout) is None or not colourful(stream or sys.stdout):
        return text
    return f"{_MARK}{_STYLES[style]};{text}{_MARK}0;"


def colourful(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    if _plain or environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    if environ.get("FORCE_COLOR"):
        return True
    # A classic Windows console shows escape codes as garbage unless a host that understands them says so.
    knows_ansi = os.name != "nt" or any(environ.get(name) for name in ("WT_SESSION", "ANSICON", "ConEmuANSI", "TERM"))
    return knows_ansi and stream.isatty()


def width() -> int:
    """The columns to fill: the terminal's, within reason; 80 when there is none."""
    columns = os.environ.get("COLUMNS", "")
    if not (columns.isascii() and columns.isdigit() and len(columns) < 6):
        try:
            columns = str(os.get_terminal_size(sys.__stdout__.fileno()).columns) if sys.__stdout__ else "80"
        except (OSError, ValueError):
            columns = "80"
    return max(40, min(int(columns), 120))


def wrap(text: str, *, indent: str = "", first: str | None = None, columns: int | None = None) -> str:
    return "\n".join(_lines(text, columns or width(), indent if first is None else first, indent))


def sentence(text: str, *, indent: str = "", stream: TextIO | None = None) -> str:
    """One line that scripts and people search logs for: it is broken only in a window, where it is looked at."""
    stream = stream or sys.stdout
    if stream is None or not stream.isatty():
        return text
    return "\n".join(wrap(row, first="", indent=indent) if row[:1].strip() else row for row in text.split("\n"))


def _lines(text: str, columns: int, first: str = "", indent: str = "") -> list[str]:
    """What stands between backticks is not broken: half a command is another one where it is pasted. Nor is a secret,
    whose half nobody would know for one."""
    import textwrap

    kept = _IN_BACKTICKS.sub(lambda span: span[0].replace(" ", _KEPT_SPACE), secrets(text))
    return [
        line.replace(_KEPT_SPACE, " ")
        for line in textwrap.wrap(
            kept,
            columns,
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def size(count: float) -> str:
    """Of a file: `3.1 GB`, `645.0 MB`, `4.2 kB`, `12 B`."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def duration(seconds: float) -> str:
    """`0.4 s`, `41 s`, `4 min`, `1 h 52 min`: as exact as it is worth saying."""
    if seconds < 100:
        return f"{seconds:.1f} s" if 0 < seconds < 1 else f"{int(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def memory(count: float) -> str:
    """Of memory: `812 MiB`, `3.4 GiB`."""
    if count < 2**30:
        return f"{count / 2**20:.0f} MiB"
    return f"{count / 2**30:.1f} GiB" if count < 100 * 2**30 else f"{count / 2**30:.0f} GiB"


def plural(count: int, noun: str) -> str:
    """`1 archive`, `1,204 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


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
    narrow = (columns or width()) < 80
    longest = max((len(word) for row in every if len(row) == count for word in row[-1].split()), default=0)
    if narrow and room < max(min(widths[-1], 20), min(longest, 30)):
        return _stacked(body, head, indent, columns or width())
    last = max(room, 20 if narrow else 12)
    wrapped = [(_lines(row[-1], last) or [""]) if len(row) == count else [""] for row in every]
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


def _stacked(rows: Sequence[Sequence[str]], head: Sequence[str], indent: str, columns: int) -> str:
    """A table in a narrow window: each row below the last, its cells below its first one."""
    below = indent + "    "
    names = [f"{name}: " for name in head] or [""] * max(map(len, rows))
    return "\n".join(
        wrap(cell, indent=below, first=below + names[at], columns=columns) if at else f"{indent}{cell}"
        for row in rows
        for at, cell in enumerate(row)
        if cell
    )


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


def _write(stream: TextIO | None, text: str, *, answer: bool) -> None:
    stirred()
    if _own is not None and "rekindle " in text:
        text = _own(text)
    parts = _MARKS.split(secrets(text))
    # Between two marks lies text, and every second part is the number of a style.
    safe = "".join(f"\x1b[{part}m" if index % 2 else clean(part) for index, part in enumerate(parts))
    _emit(stream, safe, answer=answer)


def _emit(stream: TextIO | None, text: str, *, answer: bool) -> None:
    """To the stream, in letters that it knows. Talk that cannot be written is lost; of an answer that is an error."""
    if stream is None:
        if answer:
            raise NotWritable("cannot print the answer: stdout is closed", hint="redirect it to a file or a pipe")
        return
    # A stream without an encoding keeps the text itself, as io.StringIO does.
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        text = text.translate(_PLAIN).encode("ascii" if encoding == "ascii" else encoding, "replace").decode(encoding)
    try:
        stream.write(text + "\n")
        stream.flush()
    except (OSError, ValueError) as error:
        _lost(stream, error, answer=answer)


def _lost(stream: TextIO, error: OSError | ValueError, *, answer: bool) -> None:
    number = error.errno if isinstance(error, OSError) else errno.EBADF
    # Point it at nothing, so that the interpreter's own flush at the end stays quiet.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if not answer:
        return
    # `rekindle … | head` is no error. Windows says "invalid argument" of a pipe that nobody reads any more.
    if number == errno.EPIPE or (os.name == "nt" and number == errno.EINVAL):
        raise SystemExit(0) from None
    raise NotWritable(
        f"cannot print the answer: {describe_error(error)}",
        hint="free some space, or write the answer to another place",
    ) from error
