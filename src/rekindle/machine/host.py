"""`Run`: the only way a probe touches the world, so that every answer can be recorded and replayed.

`Host` asks this computer and keeps what it was told in a `Recording`; `Replay` answers from such a recording, on any
system. A question that was not recorded is answered like one for something that is not there.
"""

from __future__ import annotations

import contextlib
import contextvars
import ntpath
import os
import posixpath
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from rekindle.core import codec, files, paths, programs, run
from rekindle.core.pattern import late
from rekindle.core.run import Result
from rekindle.machine.system import windows as windows_calls

Q = TypeVar("Q")
A = TypeVar("A")

ANY = late(r"(?s).*")
_TEXT_LIMIT = 4 * 1024 * 1024

# The variables a build listens to, and those by which this shell was set up. Nothing else is recorded.
_NAMED = frozenset(
    """PATH PATHEXT OS SYSTEMROOT SYSTEMDRIVE TEMP TMP TMPDIR VIRTUAL_ENV PYENV_VERSION VISUALSTUDIOVERSION INCLUDE LIB
    LIBPATH LD_LIBRARY_PATH LD_PRELOAD CPATH LIBRARY_PATH DISTUTILS_USE_SDK MSSDK ONEAPI_ROOT MKLROOT ICX ICC CC CXX
    CFLAGS CXXFLAGS LDFLAGS MAX_JOBS LANG LC_ALL LC_CTYPE WT_SESSION TERM HOME USERPROFILE LOCALAPPDATA APPDATA
    CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL CONDA_EXE PYTHONHOME PYTHONPATH PYTHONUTF8 PYTHONIOENCODING
    PYTHONNOUSERSITE WINDOWSSDKDIR WINDOWSSDKVERSION WINDOWSSDKLIBVERSION OPENBLAS_HOME""".split()  # noqa: SIM905
)
_BEGUN: tuple[str, ...] = (
    "PROCESSOR_ARCHITE",
    "PROGRAMFILES",
    "PROGRAMDATA",
    "PROGRAMW6432",
    "CUDA",
    "CUDNN",
    "NVCC",
    "NVTOOLSEXT",
)
_BEGUN += ("NCCL", "CONDA_PREFIX_", "VSCMD", "VSINSTALL", "VCTOOLS", "VCINSTALL", "VCIDE", "ICPP_COMPILER", "CMAKE_")
_BEGUN += ("TORCH_", "PYTORCH_", "USE_", "BUILD_", "WSL_")

_SECRET = late(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|KEY")


def matters(variable: str) -> bool:
    """A name that speaks of a secret never does, whatever it begins with."""
    name = variable.upper()
    return (name in _NAMED or name.startswith(_BEGUN)) and not _SECRET.search(name)


def readable(text: str) -> str:
    """Text that can be written down: bytes that are no text of this system's become a mark."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class CouldNotRead(ValueError):
    """A program or file answered, but not in a way that can be understood. A probe raises nothing else."""


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a command said, as it is recorded."""

    code: int | None = None
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    timed_out: bool = False


_LONGEST_PATH = 4096


class Recording(msgspec.Struct, kw_only=True):
    """Raw answers, by question. What is not in it is not there."""

    os: str
    arch: str
    environment: dict[str, str] = {}
    commands: dict[str, Said] = {}
    files: dict[str, str] = {}
    folders: dict[str, tuple[str, ...]] = {}
    present: list[str] = []
    links: dict[str, str] = {}
    registry: dict[str, dict[str, Any]] = {}
    asked: dict[str, Any] = {}


class Run(ABC):
    """Questions to a machine. `os` and `arch` are the machine's, not necessarily those of the Python that asks."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.os, self.arch = recording.os, recording.arch
        self.environment: Mapping[str, str] = recording.environment
        """The variables that matter."""

    @property
    def windows(self) -> bool:
        return self.os == "windows"

    @property
    def paths(self) -> ModuleType:
        """`ntpath` or `posixpath`, by the machine."""
        return ntpath if self.windows else posixpath

    def join(self, *parts: str) -> str:
        joined: str = self.paths.join(*parts)
        return joined

    def normal(self, path: str) -> str:
        """One spelling of a path. What no system takes for one stays: `normpath` is slow on thousands of separators."""
        return str(self.paths.normpath(path)) if 0 < len(path) <= _LONGEST_PATH else path

    def parent(self, path: str) -> str:
        folder: str = self.paths.dirname(path)
        return folder

    def env(self, name: str) -> str | None:
        """A variable that is set and not empty."""
        found = self.environment.get(name)
        if found is None and self.windows:
            found = next((value for key, value in self.environment.items() if key.upper() == name.upper()), None)
        return found or None

    @abstractmethod
    def command(self, *args: str, timeout: float = 15.0, label: str | None = None, apart: bool = False) -> Result:
        """What a program says. `label` is the question's name in a recording where its words would say too much.

        `apart`: it writes files for a while, into a folder that goes with it even if it is killed.
        """

    @abstractmethod
    def text(self, path: str) -> str | None:
        """The text of a file, or None when it is not there or may not be read."""

    @abstractmethod
    def names(self, folder: str, like: re.Pattern[str] = ANY) -> tuple[str, ...]:
        """What lies in a folder, sorted; nothing when it is not there.

        `like` keeps the rest out of a recording: what else a user has in a folder is nobody's business.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Is there a file or folder of that name?"""

    @abstractmethod
    def small(self, path: str) -> bool:
        """Is it a file of a few lines at most (a script, not a program)?"""

    @abstractmethod
    def real(self, path: str) -> str:
        """The path with links followed."""

    @abstractmethod
    def registry(self, key: str) -> Mapping[str, Any] | None:
        """`HKLM\\…`: its values by name, and under `""` the names of its sub-keys. None when there is no such key."""

    @abstractmethod
    def ask(self, question: str, answer: Callable[[], Any]) -> Any:
        """Something only code in this process can find out, as plain JSON data."""

    def told(self, question: str, answer: Callable[[], Any], kind: type[A]) -> A | None:
        """The same where only one kind of answer makes sense: a recording may hold anything."""
        found = self.ask(question, answer)
        return found if isinstance(found, kind) else None

    def which(self, name: str) -> list[str]:
        """Every `name` on PATH, the one that wins first."""
        hits = programs.places(name, self.env("PATH") or "", windows=self.windows)
        return [hit for hit in hits if self.exists(hit)]


def each(question: Callable[[Q], A], items: Iterable[Q]) -> list[A]:
    """`question` of every item, side by side, answers in order. What one raises is raised here."""
    wanted = list(items)
    answers: dict[int, A] = {}
    faults: list[BaseException] = []

    def answer(turn: int) -> None:
        try:
            answers[turn] = question(wanted[turn])
        except BaseException as fault:
            faults.append(fault)

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(answer, turn), daemon=True)
        for turn in range(1, len(wanted))
    ]
    for thread in threads:
        thread.start()
    if wanted:
        answer(0)
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return [answers[turn] for turn in range(len(wanted))]


class Host(Run):
    """This computer, in this environment. `longest` is the most seconds a program may take, whatever a probe says."""

    def __init__(self, environ: Mapping[str, str] = os.environ, *, longest: float = 60.0) -> None:
        self.longest = longest
        self._environ = environ
        kept = {key: readable(value) for key, value in environ.items() if matters(key)}
        super().__init__(Recording(os=paths.system(), arch=paths.architecture(), environment=kept))
        self._lock = threading.Lock()
        self._present: set[str] = set()
        self._real: dict[str, str] = {}

    def command(self, *args: str, timeout: float = 15.0, label: str | None = None, apart: bool = False) -> Result:
        # Not `cmd` either takes a program from the folder one stands in, nor is one named by where one stands.
        env = {**self._environ, **({"NoDefaultCurrentDirectoryInExePath": "1"} if self.windows else {})}
        if self.paths.isabs(args[0]):
            with files.scratch("probe") if apart else contextlib.nullcontext() as own:
                env |= {name: str(own) for name in ("TMPDIR", "TEMP", "TMP") if own}
                result = run.call(args, env=env, timeout=min(timeout, self.longest))
        else:
            result = Result(args=args, code=None, err="a program must be named by its full path")
        said = codec.like(Said, result, seconds=round(result.seconds, 4))
        with self._lock:
            self.recording.commands[label or spell(args)] = said
        return result

    def text(self, path: str) -> str | None:
        try:
            with Path(path).open("rb") as stream:
                found = run.decode(stream.read(_TEXT_LIMIT))
        except OSError:
            return None
        with self._lock:
            self.recording.files[path] = found
        return found

    def names(self, folder: str, like: re.Pattern[str] = ANY) -> tuple[str, ...]:
        try:
            found = tuple(sorted(readable(entry.name) for entry in os.scandir(folder) if like.fullmatch(entry.name)))
        except OSError:
            return ()
        with self._lock:
            known = self.recording.folders.get(folder, ())
            self.recording.folders[folder] = tuple(sorted({*known, *found}))
        return found

    def exists(self, path: str) -> bool:
        try:
            # Asked for every name in every folder of PATH: a Path object each would cost more than the question.
            found = os.path.exists(path)  # noqa: PTH110
        except (OSError, ValueError):
            return False
        if found:
            with self._lock:
                if path not in self._present:
                    self._present.add(path)
                    self.recording.present.append(path)
        return found

    def small(self, path: str) -> bool:
        try:
            return Path(path).stat().st_size < 4096
        except OSError:
            return False

    def real(self, path: str) -> str:
        known = self._real.get(path)
        if known is not None:
            return known
        try:
            found = os.path.realpath(path)
        except OSError:
            return path
        self._real[path] = found
        if found != path:
            with self._lock:
                self.recording.links[path] = found
        return found

    def registry(self, key: str) -> Mapping[str, Any] | None:
        found: dict[str, Any] | None = windows_calls.registry(key)
        if found is not None:
            with self._lock:
                self.recording.registry[key] = found
        return found

    def ask(self, question: str, answer: Callable[[], Any]) -> Any:
        found = answer()
        with self._lock:
            self.recording.asked[question] = found
        return found


class Replay(Run):
    """A machine that was recorded."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._files = {self._key(path): text for path, text in recording.files.items()}
        self._folders = {self._key(path): names for path, names in recording.folders.items()}
        self._links = {self._key(path): target for path, target in recording.links.items()}
        self._registry = {key.lower(): values for key, values in recording.registry.items()}
        self._commands = {self._key_command(line): said for line, said in recording.commands.items()}
        self._present = {self._key(path) for path in recording.present} | set(self._files) | set(self._folders)
        for folder, names in self._folders.items():
            self._present |= {self._key(self.join(folder, name)) for name in names}

    def command(self, *args: str, timeout: float = 15.0, label: str | None = None, apart: bool = False) -> Result:
        said = self._commands.get(self._key_command(label or spell(args)))
        if said is None:
            return Result(args=args, code=None, err="not recorded in the snapshot")
        return codec.like(Result, said, args=args)

    def text(self, path: str) -> str | None:
        return self._files.get(self._key(path))

    def names(self, folder: str, like: re.Pattern[str] = ANY) -> tuple[str, ...]:
        return tuple(name for name in self._folders.get(self._key(folder), ()) if like.fullmatch(name))

    def exists(self, path: str) -> bool:
        return self._key(path) in self._present

    def small(self, path: str) -> bool:
        return len(self._files.get(self._key(path), " " * 4096)) < 4096

    def real(self, path: str) -> str:
        return self._links.get(self._key(path), path)

    def registry(self, key: str) -> Mapping[str, Any] | None:
        return self._registry.get(key.lower())

    def ask(self, question: str, answer: Callable[[], Any]) -> Any:
        return self.recording.asked.get(question)

    def _key(self, path: str) -> str:
        return str(self.paths.normcase(self.normal(path)))

    def _key_command(self, line: str) -> str:
        # Without quotes: where a name with a space was taken out, the words are no longer quoted as they were.
        plain = line.replace('"', "")
        return plain.lower() if self.windows else plain


def spell(args: Iterable[str]) -> str:
    """A command as it is written in a recording: readable, and the same on every system."""
    return " ".join(f'"{arg}"' if re.search(r'[\s"]', arg) or not arg else arg for arg in args)
