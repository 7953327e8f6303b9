"""The one place that runs programs: a list of arguments, an explicit environment, a time limit, decoded output.

Never a shell string. A program that is missing, hangs or cannot start is a `Result` like any other (`started` is
false, or `timed_out` true), because for a probe that is an answer; `checked` turns it into an error for callers that
cannot go on without. At its time limit a program is ended with everything it has started.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import list2cmdline

import msgspec

from rekindle.core import console
from rekindle.core.errors import MissingTool, StepFailed
from rekindle.core.processes import Started


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a program said. `code` is None when it did not start or was stopped at its time limit."""

    args: tuple[str, ...]
    code: int | None
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    timed_out: bool = False

    @property
    def started(self) -> bool:
        return self.code is not None or self.timed_out

    @property
    def ok(self) -> bool:
        return self.code == 0


def call(
    args: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60.0,
    input: bytes | None = None,
    encoding: str | None = None,
) -> Result:
    """Run a program and wait. `env` replaces the whole environment; None hands on this process's own.

    `encoding` is that of stdout; what comes on stderr may be of any program below it and is always guessed.
    """
    words = tuple(os.fspath(arg) for arg in args)
    begun = time.monotonic()
    piped = None if input is None else subprocess.PIPE
    out = err = b""
    code: int | None = None
    late = False
    try:
        with Started(
            words, env=env, cwd=cwd, stdin=piped or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as started:
            try:
                with console.waiting(f"waiting for `{textwrap.shorten(list2cmdline(words), 100, placeholder=' ...')}`"):
                    out, err = started.process.communicate(input, timeout)
                code = started.process.returncode
            except subprocess.TimeoutExpired:
                late = True
                started.end()
                with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
                    out, err = started.process.communicate(timeout=5)
    except (OSError, ValueError) as error:
        console.detail(f"did not start: {list2cmdline(words)}: {error}")
        return Result(args=words, code=None, err=str(error), seconds=time.monotonic() - begun)
    seconds = time.monotonic() - begun
    console.detail(f"ran ({seconds:.1f} s, {'stopped' if late else f'exit code {code}'}): {list2cmdline(words)}")
    return Result(
        args=words,
        code=code,
        out=decode(out, encoding),
        err=decode(err),
        seconds=seconds,
        timed_out=late,
    )


def checked(result: Result, *, doing: str, hint: str | None = None) -> Result:
    """The same result if it is well, else an error that quotes the end of what the program said."""
    if result.ok:
        return result
    name = Path(result.args[0]).name if result.args else "the program"
    if not result.started:
        message = f"cannot {doing}: `{name}` could not be started ({result.err.strip() or 'not found'})"
        raise MissingTool(message, hint=hint or f"install `{name}` or put it on PATH")
    if result.timed_out:
        raise StepFailed(f"cannot {doing}: `{name}` timed out after {result.seconds:.0f} s", hint=hint)
    tail = "\n".join((result.err.strip() or result.out.strip()).splitlines()[-8:])
    message = f"cannot {doing}: `{name}` exited with code {result.code}" + (f"\n{tail}" if tail else "")
    raise StepFailed(message, hint=hint)


def decode(data: bytes, encoding: str | None = None) -> str:
    """Text from a program's bytes: UTF-16 when marked or evident, UTF-8 when valid, else the console's code page."""
    if encoding:
        return data.decode(encoding, "replace").replace("\r\n", "\n")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
    elif len(data) > 3 and data[1:60:2].count(0) > len(data[1:60:2]) * 0.8:
        text = data.decode("utf-16-le", "replace")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode(_console_encoding(data), "replace")
    return text.replace("\r\n", "\n")


def _console_encoding(data: bytes) -> str:
    """Console programs write in the OEM code page; Python and most others write to a pipe in the ANSI one.

    Letters beyond ASCII lie below 0xB0 in the OEM pages and from 0xC0 on in the ANSI pages (Latin, Greek, Cyrillic);
    where two bytes make a letter, both pages are the same.
    """
    if os.name == "nt":
        import ctypes

        kernel32 = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
        high = sum(byte >= 0xC0 for byte in data)
        low = sum(0x80 <= byte < 0xB0 for byte in data)
        page = kernel32.GetACP() if high > low else kernel32.GetOEMCP()
        return f"cp{page}" if page and page != 65001 else "cp1252"
    return "cp1252"
