"""What a build has done, one JSON object per line, on the disk before the next thing begins; and how it runs a program.

A step writes `begin` before it changes anything and `done` when it is through, each with a fingerprint of all the
step depends on. After a crash the last word stands: a step whose latest word is `done`, with the fingerprint it would
have today and its outputs in place, is not done again.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from rekindle.core import codec, lines
from rekindle.core.errors import Interrupted, MissingTool, NotWritable
from rekindle.core.files import describe_error
from rekindle.core.processes import Started


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`process` names a program that was started: its group outlives Rekindle when that is killed."""

    at: str
    event: str
    run: str
    step: str | None = None
    fingerprint: str | None = None
    seconds: float | None = None
    outputs: dict[str, str] = {}
    pid: int | None = None
    started: float | None = None
    """When that process was created, so that a reused number is not taken for it."""
    code: int | None = None
    log: str | None = None
    note: str | None = None
    fix: Remedy | None = None
    """What was fixed on the way, or could have been."""


class Journal:
    """Reads what is there and appends to it. One writer at a time: the caller holds the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = secrets.token_hex(4)
        self.entries = read(path)

    def write(self, event: str, **values: Any) -> JournalEntry:
        entry = JournalEntry(at=stamp(), event=event, run=self.run, **values)
        lines.append(self.path, entry, hint="free some space, then rerun the command to resume")
        self.entries.append(entry)
        return entry

    def last_entry(self, step: str) -> JournalEntry | None:
        words = ("begin", "done", "failed", "interrupted")
        return next((each for each in reversed(self.entries) if each.step == step and each.event in words), None)

    def done(self, step: str, fingerprint: str) -> JournalEntry | None:
        """The entry that says this step is through, if it still holds: same inputs, outputs as they were."""
        entry = self.last_entry(step)
        if entry is None or entry.event != "done" or entry.fingerprint != fingerprint:
            return None
        return entry if all(_holds(path, mark) for path, mark in entry.outputs.items()) else None

    def ever_done(self, step: str) -> bool:
        return any(each.event == "done" and each.step == step for each in self.entries)

    def left_running(self) -> list[JournalEntry]:
        """Processes that were started and of which no end is written."""
        open_: dict[int | None, JournalEntry] = {}
        for entry in self.entries:
            if entry.event == "process":
                open_[entry.pid] = entry
            elif entry.event == "ended":
                open_.pop(entry.pid, None)
        return list(open_.values())


def read(path: Path) -> list[JournalEntry]:
    return lines.read(path, JournalEntry)


def fingerprint(*inputs: Any) -> str:
    """A digest of values: structs, mappings, texts. The same values give the same digest on any run."""
    hasher = hashlib.sha256()
    for value in inputs:
        data = value if isinstance(value, (bytes, str)) else _ordered(value)
        hasher.update(data if isinstance(data, bytes) else data.encode("utf-8"))
        hasher.update(b"\0")
    return hasher.hexdigest()[:32]


THERE = "there"
"""The mark of an output that later steps may rewrite: it only has to exist."""


def _holds(path: str, mark: str) -> bool:
    return Path(path).exists() if mark == THERE else output(path) == mark


def output(path: str) -> str | None:
    """What tells that an output is still the one that was made: its size and time. None: it is gone."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return THERE if Path(path).is_dir() else f"{found.st_size}:{found.st_mtime_ns}"


def stamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def _ordered(value: Any) -> str:
    return json.dumps(codec.to_builtins(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done: `jobs` at a time, `variables` in the environment, `patches` in the source, or just again."""

    id: str
    cause: str
    step: str
    text: str
    jobs: int | None = None
    variables: dict[str, str] = {}
    patches: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """One line: the sentence, and what exactly."""
        exact = [f"{self.jobs} at a time"] if self.jobs else []
        exact += [f"{name}={value}" for name, value in self.variables.items()]
        exact += list(self.patches)
        return self.text + (f" ({', '.join(exact)})" if exact else "")


GRACE = 8.0
"""Seconds that ninja has to end its compilers and remove half-written files."""

Observer = Callable[[str], None]
"""Is handed every line."""


class StepLog(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step's programs are written down: what they say in `log`, that they ran in `journal`."""

    step: str
    log: Path
    journal: Journal


def run_program(
    args: Sequence[str],
    record: StepLog,
    *,
    env: Mapping[str, str],
    cwd: Path,
    observe: Observer | None = None,
    started: Callable[[int], None] | None = None,
) -> int:
    """Run a program to its end; its exit code. Ctrl-C ends it with all it has started before it goes on up."""
    step, log, journal = record.step, record.log, record.journal
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
                    if observe:
                        observe(line.decode("utf-8", "replace"))
                code = int(program.process.wait())
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
    return code


def compress_log(log: Path) -> Path:
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
