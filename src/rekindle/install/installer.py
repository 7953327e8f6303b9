"""pip, or uv where the environment has no pip. They do the downloading, so a user's mirror, proxy and hashes hold."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import msgspec

from rekindle.core import console, files, python, run
from rekindle.core.command import Command
from rekindle.core.errors import FetchFailed, MissingTool, StepFailed
from rekindle.core.fetch import setting_behind
from rekindle.core.paths import sha256_of
from rekindle.core.programs import which
from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import since
from rekindle.model.environment import Environment

_LONG = 3600.0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to install. Without `index` words: from the index that is configured, as `first` and `last` always are.

    `last` goes in without what it needs: that already exists. `beside` are extensions, each with pip's words for it.
    """

    requirements: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    beside: tuple[tuple[str, ...], ...] = ()

    def key(self, environment: Environment) -> str:
        """The name of the folder that its downloads are kept in."""
        said = json.dumps([*msgspec.structs.astuple(self), environment.tag, environment.os])
        return hashlib.sha256(said.encode("utf-8")).hexdigest()[:16]

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """What the installer is told, one call after the other."""
        torch = (*self.requirements, *self.index)
        return tuple(filter(None, (self.first, torch, *(("--no-deps", pin) for pin in self.last), *self.beside)))

    @property
    def calls(self) -> tuple[tuple[str, ...], ...]:
        """The same without indexes and extensions, in as few calls as it takes."""
        last = ("--no-deps", *self.last) if self.last else ()
        return tuple(filter(None, ((*self.first, *self.requirements), last)))

    @property
    def index_url(self) -> str | None:
        return self.index[-1] if self.index else None


class Pip:
    """The environment's own pip. Downloads first, so that a network that fails has changed nothing."""

    name = "pip"

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._words = python.pip(environment.program)

    def commands(self, request: Request) -> tuple[Command, ...]:
        """As a person would type it, for this very environment."""
        return tuple(self._environment.pip_command("install", *words) for words in request.steps)

    def download(self, request: Request, folder: Path) -> list[Path]:
        """Every wheel of the request and of what it needs, one after the other; what already exists is kept."""
        folder.mkdir(parents=True, exist_ok=True)
        torch = [
            (item, request.index if words == request.requirements else ())
            for words in (request.first, request.requirements, *((pin,) for pin in request.last))
            for item in (self._resolved(words, request) if words else [])
        ]
        found = self._brought(torch, folder, request)
        # An extension with the very torch that has arrived: the index may have another one of the same version.
        own = [str(path) for path in found if path.name.startswith("torch-")]
        for requirement, *switch in request.beside:
            more = ["--find-links", str(folder), *switch]
            items = self._resolved((requirement, *own, *request.first), request, more)
            found += self._brought([(item, tuple(switch)) for item in items], folder, request)
        # pip would choose among all that lies there: what an earlier run left, when the index had another file, goes.
        for path in {*folder.iterdir()} - {*found}:
            path.unlink()
        return list(dict.fromkeys(found))

    def _brought(
        self, wanted: list[tuple[python.PipWheel, tuple[str, ...]]], folder: Path, request: Request
    ) -> list[Path]:
        for number, (item, index) in enumerate(wanted, start=1):
            path = folder / item.file
            # pip puts a file here only when it is complete; its hash is compared where the index tells one.
            if not (path.is_file() and item.sha256 in (None, sha256_of(path))):
                console.say(f"downloading {number} of {len(wanted)}: {item.name} {item.version}")
                self._fetch(item, index, folder, request)
        return [folder / item.file for item, _ in wanted]

    def _resolved(self, wanted: tuple[str, ...], request: Request, more: Sequence[str] = ()) -> list[python.PipWheel]:
        """What pip chooses, by its own resolver, before anything large is fetched."""
        words = [*self._words, "install", "--dry-run", "--only-binary=:all:"]
        words += ["--ignore-installed"] if request.requirements else []  # else torch already exists
        words += request.index if wanted == request.requirements else more
        words += ["--no-deps"] if set(wanted) <= set(request.last) else []
        console.say(f"resolving {', '.join(wanted)}")
        # Not quiet: why an index could not be read, pip says beside its progress.
        with files.scratch("pip") as folder:
            report = folder / "report.json"
            result = run.call([*words, "--report", str(report), *wanted], timeout=_LONG)
            if not result.ok:
                raise _fetch_failed(result, request, self.commands(request))
            return python.pip_report(report.read_text(encoding="utf-8"))

    def _fetch(self, item: python.PipWheel, index: tuple[str, ...], folder: Path, request: Request) -> None:
        words = [*self._words, "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), *index]
        result = run.call([*words, item.url if item.direct else f"{item.name}=={item.version}"], timeout=_LONG)
        if not result.ok:
            raise _fetch_failed(result, request, self.commands(request))

    def changes(self, request: Request, folder: Path) -> dict[str, str]:
        """Name and version of everything that an install from `folder` would bring in."""
        said = self._from(folder, request, "--dry-run", "--report", "-")
        return {wheel.name: wheel.version for each in said for wheel in python.pip_report(each)}

    def install(self, request: Request, folder: Path) -> None:
        self._from(folder, request)

    def _from(self, folder: Path, request: Request, *options: str) -> list[str]:
        words = [*self._words, "install", "-q", *options, "--no-index", "--find-links", str(folder)]
        calls = [*request.calls, *((each[0],) for each in request.beside)]
        return [
            _done(run.call([*words, *(_arrived(each, folder) for each in wanted)], timeout=_LONG)) for wanted in calls
        ]


def _arrived(word: str, folder: Path) -> str:
    """What was named by its address or path is the file that came from there: there may be another by now."""
    path = folder / unquote(re.split(r"[/\\]", word.partition("#")[0])[-1])
    return str(path) if path.suffix == ".whl" and path.is_file() else word


class Uv:
    """uv has no download step; it keeps its own cache and changes nothing when it cannot fetch.

    It obeys the `uv.toml` and `pyproject.toml` of the folder it stands in and of those above, which may be anybody's
    project: it is started at the root of the disk. What the user has set for all projects holds.
    """

    name = "uv"

    def __init__(self, environment: Environment, program: str) -> None:
        self._system = environment.os
        self._words = [program, "pip", "install", "--python", environment.program]

    def _call(self, words: Sequence[str]) -> run.Result:
        return run.call(words, cwd=Path(self._words[-1]).absolute().parents[-1], timeout=_LONG)

    def commands(self, request: Request) -> tuple[Command, ...]:
        return tuple(Command("uv", *self._words[1:], *words, system=self._system) for words in request.steps)

    def download(self, request: Request, folder: Path) -> list[Path]:
        """The wheels that are named by their paths: what is looked at and what is installed is one copy."""
        folder.mkdir(parents=True, exist_ok=True)
        named = [Path(word) for word in request.requirements if word.endswith(".whl") and "://" not in word]
        return [Path(shutil.copyfile(wheel, folder / wheel.name)) for wheel in named]

    def changes(self, request: Request, folder: Path) -> dict[str, str]:
        lines: list[str] = []
        for words in self._calls(request, folder):
            result = self._call([*words, "--dry-run"])
            if not result.ok:
                raise _fetch_failed(result, request, self.commands(request))
            lines += [line.strip() for line in result.err.splitlines()]
        return dict(line[2:].split("==", 1) for line in lines if line.startswith("+ ") and "==" in line)

    def install(self, request: Request, folder: Path) -> None:
        for words in self._calls(request, folder):
            _done(self._call(words))

    def _calls(self, request: Request, folder: Path) -> list[list[str]]:
        first, *rest = ([_arrived(word, folder) for word in each] for each in (*request.calls, *request.beside))
        return [[*self._words, *request.index, *first], *([*self._words, *each] for each in rest)]


Installer = Pip | Uv


def installer_of(environment: Environment, wanted: str | None = None) -> Installer:
    """The environment's pip if it has one, else uv; or the one that was asked for."""
    uv = which("uv")
    if wanted == "uv" or (wanted is None and environment.pip is None):
        if uv is None:
            message = "the environment has no pip, and uv is not on PATH" if wanted is None else "uv is not on PATH"
            raise MissingTool(message, hint=f"`{_ensurepip(environment)}`, or install uv")
        return Uv(environment, uv)
    if environment.pip is None:
        raise MissingTool("the environment has no pip", hint=f"`{_ensurepip(environment)}`, or `--installer uv`")
    if Version.find(environment.pip) is not None and Version(environment.pip) < since("pip-reports"):
        message = f"the environment's pip {environment.pip} cannot say beforehand what it would change"
        raise MissingTool(message, hint=f"`{environment.pip_command('install', '-U', 'pip')}`, or `--installer uv`")
    return Pip(environment)


def _ensurepip(environment: Environment) -> Command:
    return Command(environment.program, "-m", "ensurepip", system=environment.os)


_RETRY, _LAST = "Retrying (Retry(", "Retrying (Retry(total=0"
_NOT_FOUND = re.compile(r"Could not find a version that satisfies|No matching distribution found")


def last_words(err: str, out: str = "") -> str:
    """What pip or uv said at last, without its retries; or the setting behind it. Where no server could be asked to
    the last try, that there is no such wheel is not known."""
    lines = (err + out).splitlines()
    why = setting_behind("\n".join(line for line in lines if _RETRY not in line or _LAST in line))
    said = [line for line in err.strip().splitlines() if _RETRY not in line and not (why and _NOT_FOUND.search(line))]
    return "\n".join([*said[-4:], *filter(None, [why])])


def _fetch_failed(result: run.Result, request: Request, commands: Sequence[Command]) -> FetchFailed:
    tail = last_words(result.err, result.out)
    where = request.index_url or "the configured package index"
    message = f"the wheels could not be downloaded from {where}; the environment is unchanged\n{tail}"
    return FetchFailed(message, hint=where_it_works(tail, commands))


def where_it_works(said: str, commands: Sequence[Command]) -> str:
    """An index that answered is no matter of the network."""
    where = "where an index has it" if _NOT_FOUND.search(said) else "where that index can be reached"
    return f"{where}, run:\n  " + "\n  ".join(commands)


def _done(result: run.Result) -> str:
    """What it said, or an error with its last lines."""
    if result.ok:
        return result.out
    tail = "\n".join((result.err.strip() or result.out.strip()).splitlines()[-8:])
    raise StepFailed(f"the installer exited with code {result.code}\n{tail}", hint="the environment was restored")
