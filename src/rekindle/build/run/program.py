"""Runs one program of a build: in a group of its own, every line timed in the log, its life in the journal."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from rekindle.build.run.journal import Journal, stamp
from rekindle.core.errors import Interrupted, MissingTool, NotWritable
from rekindle.core.files import describe_error
from rekindle.core.processes import Started

GRACE = 8.0
"""Seconds that ninja has to end its compilers and remove half-written files."""

Observer = Callable[[str], None]
"""Is handed every line."""


class ProgramResult(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    seconds: float
    lines: int

    @property
    def ok(self) -> bool:
        return self.code == 0


class StepLog(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step's programs are written down: what they say in `log`, that they ran in `journal`."""

    step: str
    log: Path
    journal: Journal


def run(
    args: Sequence[str],
    record: StepLog,
    *,
    env: Mapping[str, str],
    cwd: Path,
    observe: Observer | None = None,
    started: Callable[[int], None] | None = None,
) -> ProgramResult:
    """Run a program to its end. Ctrl-C ends it with all it has started before it goes on up."""
    step, log, journal = record.step, record.log, record.journal
    begun = time.monotonic()
    count = 0
    with _opened(log) as stream:
        _line(stream, ("+ " + " ".join(args)).encode("utf-8", "replace"))
        try:
            program = Started(args, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            message = f"cannot start `{args[0]}`: {error.strerror or error}"
            raise MissingTool(
                message, hint="install it or put it on PATH; `rekindle doctor` says what is missing"
            ) from error
        with program:
            journal.write("process", step=step, pid=program.pid, started=_created(program.pid), log=str(log))
            if started:
                started(program.pid)
            try:
                for raw in program.lines():
                    line = raw.rstrip(b"\r\n")
                    _line(stream, line)
                    count += 1
                    if observe:
                        observe(line.decode("utf-8", "replace"))
                code = program.process.wait()
            except KeyboardInterrupt:
                program.end(grace=GRACE)
                journal.write("ended", step=step, pid=program.pid, note="interrupted")
                raise Interrupted(f"interrupted during {step}", hint="rerun the command to resume") from None
            except OSError as error:
                program.end(grace=GRACE)
                message = f"cannot write the log `{log}`: {describe_error(error)}"
                raise NotWritable(message, hint="free some space, then rerun the command to resume") from error
            # A leader that was killed can leave its compilers behind: they belong to the same group.
            program.end()
            journal.write("ended", step=step, pid=program.pid, code=code)
    return ProgramResult(code=code, seconds=time.monotonic() - begun, lines=count)


def compress(log: Path) -> Path:
    """The log of a step that went well, compressed; the plain one is removed."""
    packed = log.with_name(log.name + ".gz")
    with log.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as stream:
        shutil.copyfileobj(plain, stream)
    log.unlink()
    return packed


def _opened(log: Path) -> IO[bytes]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab")
    except OSError as error:
        message = f"cannot write the log `{log}`: {describe_error(error)}"
        raise NotWritable(message, hint="free some space, then rerun the command to resume") from error


def _line(stream: IO[bytes], line: bytes) -> None:
    stream.write(stamp().encode() + b" " + line + b"\n")
    stream.flush()


def _created(pid: int) -> float | None:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
