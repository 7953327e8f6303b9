"""Programs with everything they start: begun together, ended together.

Ending a compiler driver leaves its compilers running, and a pipe that they inherited never closes. On Linux a program
gets a session of its own and its group is ended; on Windows it gets a Job Object, from before its first instruction.
If this process dies, Windows ends the job; on Linux the group lives on and can be found by its id.
"""

from __future__ import annotations

import contextlib
import errno
import ntpath
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rekindle.core.programs import absolute_entries, found, in_system, is_absolute, may_run, path_of, which

_BATCH = (".bat", ".cmd")
_SEPARATORS = frozenset("/\\") if os.name == "nt" else frozenset("/")
_PLACES = ("PATH", "LD_LIBRARY_PATH")
_PROGRAMS = ("CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_BATCH_DANGER = frozenset('"%\r\n\0')


def _begun(words: list[str], options: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """A program that was just written stays busy while a child that another thread started still has it open."""
    for _ in range(40):
        try:
            return subprocess.Popen(words, start_new_session=True, **options)
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise
            time.sleep(0.05)
    return subprocess.Popen(words, start_new_session=True, **options)


def attached(args: Sequence[str], *, env: Mapping[str, str]) -> int:
    """Run a program that has this terminal, by the same rules as any other; its exit code."""
    return subprocess.call(_looked_up(args, env), env=_without_relative_places(env))


def _looked_up(args: Sequence[str | os.PathLike[str]], env: Mapping[str, str] | None) -> list[str]:
    words = [os.fspath(arg) for arg in args]
    if not may_run():
        raise PermissionError(errno.EPERM, "this command only reads, and starts no program", *words[:1])
    return words if _SEPARATORS & set(words[0]) else [found(words[0], env), *words[1:]]


class Started:
    """A program that is running. `end` ends it with all it has started; so does an error inside a `with` block."""

    def __init__(
        self,
        args: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> None:
        words = _looked_up(args, env)
        options: dict[str, Any] = {"env": _without_relative_places(env), "cwd": cwd}
        options |= {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        if sys.platform == "win32":
            from rekindle.core.job_object import Job, start_in

            self._job: Job | None = Job()
            self.process = start_in(self._job, command_line(words, env), options)
        else:
            self.process = _begun(words, options)

    @property
    def pid(self) -> int:
        return self.process.pid

    def lines(self) -> Iterator[bytes]:
        """What it writes to stdout, line by line, as it comes.

        On Windows a read that waits cannot be interrupted: Ctrl-C would be noticed at the next line, which a long
        compile may keep back for half an hour. There a thread reads, and this process only ever waits for moments.
        """
        pipe = self.process.stdout
        if pipe is None:
            return
        if sys.platform != "win32":
            yield from pipe
        else:
            arrived: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            threading.Thread(target=_hand_over, args=(pipe, arrived), daemon=True).start()
            while True:
                try:
                    line = arrived.get(timeout=0.2)
                except queue.Empty:
                    continue
                if line is None:
                    return
                yield line

    def end(self, *, grace: float = 0.0) -> None:
        """End it and all it has started. With `grace` it is asked first (Linux) and has that many seconds."""
        if sys.platform == "win32":
            if self._job:
                self._job.end()
        else:
            if grace:
                self._signal(signal.SIGTERM)
                limit = time.monotonic() + grace
                while self.process.poll() is None and time.monotonic() < limit:
                    time.sleep(0.05)
            self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)

    def release(self) -> None:
        """Let go of it: what it has left running on purpose (a compiler cache's server) goes on."""
        if sys.platform == "win32" and self._job:
            self._job.release()
            self._job = None

    def __enter__(self) -> Started:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None or self.process.poll() is None:
            self.end()
        self.release()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()

    def _signal(self, number: int) -> None:
        if sys.platform != "win32":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)


def _hand_over(pipe: IO[bytes], arrived: queue.SimpleQueue[bytes | None]) -> None:
    # The pipe may be closed under us when the program is ended.
    with contextlib.suppress(OSError, ValueError):
        for line in pipe:
            arrived.put(line)
    arrived.put(None)


def command_line(words: Sequence[str], env: Mapping[str, str] | None) -> str:
    """What Windows is told to run.

    Windows looks for a bare name in the current folder, then along *this* process's PATH, whatever environment the
    program gets, and only for `.exe`; here it is looked for along the PATH that the program will have. A batch file is
    run by `cmd`, which reads `&` and `|` in arguments as commands unless they are quoted, and cannot be stopped from
    reading `%` and `"`.
    """
    program = words[0]
    if not {"/", "\\"} & set(program):
        program = which(program, path_of(env), windows=True) or in_system(program)
    if not program.lower().endswith(_BATCH):
        return subprocess.list2cmdline([program, *words[1:]])
    for word in words[1:]:
        if _BATCH_DANGER & set(word):
            raise ValueError(f"`{word}` cannot be handed to the batch file `{program}` unharmed")
    quoted = " ".join(f'"{word}"' for word in (program, *words[1:]))
    shell = ntpath.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "cmd.exe")
    return f'{shell} /d /v:off /s /c "{quoted}"'


def _without_relative_places(env: Mapping[str, str] | None) -> dict[str, str]:
    """What a program is given: it looks for others along this PATH, too, and starts what these variables name."""
    own = dict(os.environ if env is None else env)
    windows = os.name == "nt"
    for name in [name for name in own if name in _PLACES or (windows and name.upper() == "PATH")]:
        own[name] = os.pathsep.join(absolute_entries(own[name], windows=windows))
    own = {name: value for name, value in own.items() if not (name in _PROGRAMS and _from_here(name, value, windows))}
    # The standard says that a relative one is none: pip would take its settings from where one stands.
    places = [name for name in own if re.fullmatch("XDG_[A-Z]+_HOME", name)]
    relative = {name for name in places if not is_absolute(own[name], windows=windows)}
    return {name: value for name, value in own.items() if name not in relative}


def _from_here(name: str, value: str, windows: bool) -> bool:
    """Whether it names a program by where one stands: a bare name is looked for along PATH, but nvcc takes that of a
    folder for the folder."""
    whole = value.strip('"')
    one = windows or Path(whole).is_file()  # its folder may be called with a space
    words = [whole] if one else [word for word in value.split() if not word.startswith("-D")]
    for place in (word.rpartition("=")[2] for word in words):
        folder = name.startswith("NVCC_") and place != "" and Path(place).is_dir()
        if (folder or (place[:1] != "-" and _SEPARATORS & set(place))) and not is_absolute(place, windows=windows):
            return True
    return False
