"""The one place that runs programs: a list of arguments, an explicit environment, a time limit, decoded output.

Never a shell string. A program that is missing, hangs or cannot start is a `Result` like any other (`started` is
false, or `timed_out` true), because for a probe that is an answer; `checked` turns it into an error for callers that
cannot go on without. At its time limit, and when it says more than anybody would read, a program is ended with
everything it has started.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from rekindle.core import console
from rekindle.core.command import without_shell
from rekindle.core.errors import BadInput, MissingTool, StepFailed
from rekindle.core.processes import Started

MOST_SAID = 256 * 1024**2
"""What a program may say: three times all commands of a build of PyTorch."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a program said. `code` is None when it did not start or was stopped: late, or after it said `too_much`."""

    args: tuple[str, ...]
    code: int | None
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    timed_out: bool = False
    too_much: bool = False

    @property
    def started(self) -> bool:
        return self.code is not None or self.timed_out or self.too_much

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
    most: int = MOST_SAID,
) -> Result:
    """Run a program and wait. `env` replaces the whole environment; None hands on this process's own.

    `encoding` is that of stdout; what comes on stderr may be of any program below it and is always guessed. More than
    `most` bytes on either end it.
    """
    words = tuple(os.fspath(arg) for arg in args)
    shown = without_shell(words, windows=os.name == "nt")
    begun = time.monotonic()
    piped = None if input is None else subprocess.PIPE
    code: int | None = None
    try:
        with Started(
            words, env=env, cwd=cwd, stdin=piped or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as started:
            if started.process.stdin is not None:
                threading.Thread(target=_write, args=(started.process.stdin, input), daemon=True).start()
            pipes = [_Pipe(pipe, most) for pipe in (started.process.stdout, started.process.stderr)]
            what = textwrap.shorten(shown, 100, placeholder=" ...")
            with console.waiting(f"waiting for `{what}`"), contextlib.suppress(subprocess.TimeoutExpired):
                if all(pipe.ended(begun + timeout, pipes) for pipe in pipes):
                    code = started.process.wait(max(0.0, begun + timeout - time.monotonic()))
            if code is None:
                started.end()
                for pipe in pipes:
                    pipe.thread.join(5)
    except (OSError, ValueError) as error:
        console.detail(f"did not start: {shown}: {error}")
        return Result(args=words, code=None, err=str(error), seconds=time.monotonic() - begun)
    seconds = time.monotonic() - begun
    too_much = any(pipe.full for pipe in pipes)
    ending = "stopped" if code is None else f"exit code {code}"
    console.detail(f"ran ({seconds:.1f} s, {ending}): {shown}")
    return Result(
        args=words,
        code=code,
        out=decode(bytes(pipes[0].data), encoding),
        err=decode(bytes(pipes[1].data)),
        seconds=seconds,
        timed_out=code is None and not too_much,
        too_much=too_much,
    )


class _Pipe:
    """What comes out of a pipe, up to the most that is kept."""

    def __init__(self, pipe: IO[bytes] | None, most: int) -> None:
        assert pipe is not None
        self.data, self.most, self.full = bytearray(), most, False
        self.thread = threading.Thread(target=self._read, args=(pipe.fileno(),), daemon=True)
        self.thread.start()

    def _read(self, handle: int) -> None:
        with contextlib.suppress(OSError):  # it may be closed under us when the program is ended
            while block := os.read(handle, 1 << 16):
                self.data += block
                if len(self.data) > self.most:
                    self.full = True
                    return

    def ended(self, until: float, all_of_it: Sequence[_Pipe]) -> bool:
        while self.thread.is_alive() and time.monotonic() < until and not any(pipe.full for pipe in all_of_it):
            self.thread.join(min(0.2, max(0.0, until - time.monotonic())))
        return not self.thread.is_alive() and not self.full


def _write(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError), pipe:
        pipe.write(data)


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
    if result.too_much:
        size = len(result.out) + len(result.err)
        raise BadInput(f"cannot {doing}: `{name}` was ended after it had said {size:,} characters")
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
