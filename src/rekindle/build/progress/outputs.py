"""What an output of Ninja is: the object of which source, of which target, in which language; or a link.

CMake calls the object of `aten/src/ATen/core/Tensor.cpp` in the target `torch_cpu` of the folder `caffe2`
`caffe2/CMakeFiles/torch_cpu.dir/__/aten/src/ATen/core/Tensor.cpp.o`. Named by its source it is the same file in every
build, whatever the build's folder.
"""

from __future__ import annotations

import ntpath
import posixpath
import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rekindle.build.governor.endpoint import held_by
from rekindle.core import run
from rekindle.formats import ninja_log

if TYPE_CHECKING:
    from psutil import Process

_OBJECT = re.compile(r"(?:(?P<folder>.*?)/)?CMakeFiles/(?P<target>[^/]+)\.dir/(?P<source>.+?)(?:\.o|\.obj)$")
_PLAIN_OBJECT = re.compile(r"(?P<source>.+)\.(?:o|obj)$")
_LINKED = re.compile(r"\.(?:so(?:\.[\d.]+)?|a|dll|lib|exe|pyd|dylib)$")
_LANGUAGES = {"cu": "cuda", "c": "c", "s": "c", "asm": "c"}


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is `cxx`, `c`, `cuda`, `link` or `other`; `source` stands for the name of what is no object."""

    name: str
    kind: str
    source: str
    target: str = ""

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.source)

    @property
    def file(self) -> str:
        return posixpath.basename(self.source)

    @property
    def key(self) -> str:
        """The name under which its weight is kept."""
        return f"{self.target}:{self.source}" if self.target else self.source


@lru_cache(maxsize=65536)
def read(name: str) -> Output:
    path = name.replace("\\", "/")
    found = _OBJECT.match(path) or _PLAIN_OBJECT.match(path)
    if found:
        parts = found.groupdict()
        inner = "/".join(".." if part == "__" else part for part in parts["source"].split("/"))
        source = posixpath.normpath(posixpath.join(parts.get("folder") or "", inner))
        # A source outside the project's own folder: where that folder lies is another matter in every build.
        source = source.removeprefix("/")
        while source.startswith("../"):
            source = source[3:]
        language = _LANGUAGES.get(source.rpartition(".")[2].lower(), "cxx")
        return Output(name=name, kind=language, source=source, target=parts.get("target") or "")
    kind = "link" if _LINKED.search(path) else "other"
    return Output(name=name, kind=kind, source=path)


STATUS = "[%f/%t] "
"""NINJA_STATUS as the lines are read here; a user's own would not be understood."""

_LINE = re.compile(r"^\[(?P<done>\d{1,7})/(?P<total>\d{1,7})\] (?P<text>.*)$")
_MAKES = re.compile(r"^(?:Building \S+ (?:dependency )?object|Linking .*?|Creating .*?|Archiving .*?) (?P<path>\S+)$")

_RENEWS = "Re-running CMake..."
_OUTPUT = re.compile(r" -o (\S+)|/Fo(\S+)")
_CUSTOM = re.compile(
    rb"^build ((?:[^\s:|$]|\$.)+)[^\n]*: CUSTOM_COMMAND\b[^\n]*\n(?:  (?!DESC)[^\n]*\n)*  DESC = ([^\n]+)$",
    re.MULTILINE,
)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """`[331/1598] Building CXX object a.cpp.o`: an output, or what the command says of itself."""

    done: int
    total: int
    name: str


def read_line(line: str) -> Line | None:
    found = _LINE.match(line)
    if not found:
        return None
    makes = _MAKES.match(found["text"])
    return Line(done=int(found["done"]), total=int(found["total"]), name=makes["path"] if makes else found["text"])


def listed(ninja: str, build: Path, targets: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """What Ninja would make now, in its order; nothing when it does not say.

    Only while no Ninja runs in this folder: even a dry run mends the logs that the other one is writing.
    """
    said = run.call(
        [ninja, "-C", str(build), "-n", *targets], env={**environ, "NINJA_STATUS": STATUS}, cwd=build, timeout=120
    )
    if not said.ok:
        return ()
    names = [found.name for line in said.out.splitlines() if (found := read_line(line))]
    if _RENEWS in names:
        # Ninja stops there: it cannot know what CMake will write. The rules of before are near enough.
        names += _commanded(ninja, build, targets, environ)
    return tuple(dict.fromkeys(names))


def _commanded(ninja: str, build: Path, targets: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The outputs of all commands that lead to the targets, without those that Ninja's log has and the folder too."""
    said = run.call([ninja, "-C", str(build), "-t", "commands", *targets], env=environ, cwd=build, timeout=120)
    log = build / ".ninja_log"
    made = {step.output for step in ninja_log.read(log)} if log.is_file() else set()
    outputs = [found[1] or found[2] for line in said.out.splitlines() if (found := _OUTPUT.search(line))]
    return [name for name in outputs if not (name in made and (build / name).exists())]


def described(build: Path) -> dict[str, str]:
    """The first output of every command that names itself by a sentence, by that sentence.

    Ninja's lines say `Performing build step for 'nccl_external'`, its log says which file came of it.
    """
    try:
        # On Windows CMake ends its lines with CRLF.
        text = (build / "build.ninja").read_bytes().replace(b"\r\n", b"\n")
    except OSError:
        return {}
    names: dict[str, str] = {}
    for found in _CUSTOM.finditer(text):
        output = found[1].decode("utf-8", "replace").replace("$:", ":").replace("$ ", " ")
        names.setdefault(found[2].decode("utf-8", "replace"), output)
    return names


_MADE = re.compile(r"""(?:^|\s)(?:-o\s+|--output-file[= ]|[/-]Fo:?|[/-](?i:out):)["']?(?P<path>[^\s"';&|]+)""")
# MSVC's whole command line may be in a file, which Ninja names after the object.
_RESPONSE = re.compile(r"""@["']?(?P<path>\S+?)\.rsp\b""")


class RunningProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One job: the compiler with all that it has started. `memory` in bytes, None where it cannot be read."""

    output: str | None
    seconds: float
    memory: int | None
    program: str = ""


class Watcher:
    """Looks at everything below one process, again and again; a command line is read once."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._commands: dict[tuple[int, float], tuple[str | None, str]] = {}

    def look(self) -> list[RunningProgram]:
        """The jobs, oldest first: what Ninja has started, or this program when no Ninja runs."""
        import psutil

        try:
            root = psutil.Process(self.pid)
            below = root.children(recursive=True)
        except psutil.Error:
            return []
        parents: dict[int, int] = {}
        ninjas: set[int] = set()
        for process in [root, *below]:
            try:
                if process.name().lower().startswith("ninja"):
                    ninjas.add(process.pid)
                parents[process.pid] = process.ppid()
            except psutil.Error:
                continue
        # A Ninja that waits for another Ninja (an external project) has that as its job: the inner one's jobs count.
        outer: set[int] = set()
        for ninja in ninjas:
            above = parents.get(ninja)
            while above and above not in outer:
                outer.add(above)
                above = parents.get(above)
        found = [job for head in below if parents.get(head.pid) in ninjas - outer and (job := self._job(head))]
        return sorted(found, key=lambda job: -job.seconds)

    def _job(self, head: Process) -> RunningProgram | None:
        import psutil

        try:
            created = head.create_time()
            identity = (head.pid, created)
            if identity not in self._commands:
                words = head.cmdline()
                self._commands[identity] = output_of(" ".join(words)), ntpath.basename(words[0]) if words else ""
        except psutil.Error:
            return None
        output, program = self._commands[identity]
        age = max(0.0, time.time() - created)
        return RunningProgram(output=output, program=program, seconds=age, memory=held_by(head.pid))


def output_of(command: str) -> str | None:
    """What a compile or link command makes."""
    found = _MADE.search(command) or _RESPONSE.search(command)
    return found["path"].replace("\\", "/") if found else None
