"""pip, or uv where the environment has no pip. They do the downloading, so a user's mirror, proxy and hashes hold."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from rekindle.core import console, python, run
from rekindle.core.command import Command
from rekindle.core.errors import FetchFailed, MissingTool, StepFailed
from rekindle.core.fetch import setting_behind
from rekindle.core.paths import sha256_of
from rekindle.core.processes import which
from rekindle.core.version import Version
from rekindle.model.environment import Environment

_LONG = 3600.0
_FIRST_PIP = Version("22.2")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to install. `index_url` None: the index that is configured. `first` is installed from that one always."""

    requirements: tuple[str, ...]
    first: tuple[str, ...] = ()
    index_url: str | None = None

    def key(self, environment: Environment) -> str:
        """The name of the folder that its downloads are kept in."""
        said = json.dumps([self.requirements, self.first, self.index_url, environment.tag, environment.os])
        return hashlib.sha256(said.encode("utf-8")).hexdigest()[:16]

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """What the installer is told, one call after the other."""
        index = ("--index-url", self.index_url) if self.index_url else ()
        return (*([self.first] if self.first else []), (*self.requirements, *index))


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    """One wheel of pip's report. `direct`: it was named by its own address."""

    name: str
    version: str
    url: str
    direct: bool
    sha256: str | None

    @classmethod
    def of(cls, item: dict[str, Any]) -> _Item:
        info = item["download_info"]
        hashes = info.get("archive_info", {}).get("hashes", {})
        return cls(
            name=item["metadata"]["name"],
            version=item["metadata"]["version"],
            url=info["url"],
            direct=bool(item.get("is_direct")),
            sha256=hashes.get("sha256"),
        )

    @property
    def file(self) -> str:
        return unquote(self.url.rpartition("/")[2].partition("#")[0])


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
        """Every wheel of the request and of what it needs, one after the other; what is there already is kept."""
        folder.mkdir(parents=True, exist_ok=True)
        wanted = [
            (item, index)
            for words, index in ((request.first, None), (request.requirements, request.index_url))
            for item in (self._resolved(words, index, request) if words else [])
        ]
        found: list[Path] = []
        for number, (item, index) in enumerate(wanted, start=1):
            path = folder / item.file
            # pip puts a file here only when it is whole; its hash is compared where the index tells one.
            if not (path.is_file() and item.sha256 in (None, sha256_of(path))):
                console.say(f"downloading {number} of {len(wanted)}: {item.name} {item.version}")
                self._fetch(item, index, folder, request)
            found.append(path)
        return [path for path in found if path.is_file()] or sorted(folder.glob("*.whl"))

    def _resolved(self, wanted: tuple[str, ...], index: str | None, request: Request) -> list[_Item]:
        """What pip chooses, by its own resolver, before anything large is fetched."""
        words = [*self._words, "install", "--dry-run", "--ignore-installed", "--only-binary=:all:"]
        words += ["--index-url", index] if index else []
        console.say(f"resolving {', '.join(wanted)}")
        # Not quiet: why an index could not be read, pip says beside its progress.
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            result = run.call([*words, "--report", str(report), *wanted], timeout=_LONG)
            if not result.ok:
                raise _fetch_failed(result, request, self.commands(request))
            return [_Item.of(item) for item in json.loads(report.read_bytes())["install"]]

    def _fetch(self, item: _Item, index: str | None, folder: Path, request: Request) -> None:
        words = [*self._words, "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
        words += ["--index-url", index] if index else []
        result = run.call([*words, item.url if item.direct else f"{item.name}=={item.version}"], timeout=_LONG)
        if not result.ok:
            raise _fetch_failed(result, request, self.commands(request))

    def changes(self, request: Request, folder: Path) -> dict[str, str]:
        """Name and version of everything that an install from `folder` would bring in."""
        words = [*self._words, "install", "-q", "--dry-run", "--report", "-", "--no-index", "--find-links", str(folder)]
        result = run.call([*words, *request.first, *request.requirements], timeout=600)
        if not result.ok:
            raise _step_failed(result)
        items = json.loads(result.out)["install"]
        return {item["metadata"]["name"]: item["metadata"]["version"] for item in items}

    def install(self, request: Request, folder: Path) -> None:
        words = [*self._words, "install", "-q", "--no-index", "--find-links", str(folder)]
        result = run.call([*words, *request.first, *request.requirements], timeout=_LONG)
        if not result.ok:
            raise _step_failed(result)


class Uv:
    """uv has no download step; it keeps its own cache and changes nothing when it cannot fetch."""

    name = "uv"

    def __init__(self, environment: Environment, program: str) -> None:
        self._system = environment.os
        self._words = [program, "pip", "install", "--python", environment.program]

    def commands(self, request: Request) -> tuple[Command, ...]:
        return tuple(Command("uv", *self._words[1:], *words, system=self._system) for words in request.steps)

    def download(self, request: Request, folder: Path) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        return []

    def changes(self, request: Request, folder: Path) -> dict[str, str]:
        result = run.call([*self._all(request), "--dry-run"], timeout=_LONG)
        if not result.ok:
            raise _fetch_failed(result, request, self.commands(request))
        lines = [line.strip().removeprefix("+ ") for line in result.err.splitlines() if line.strip().startswith("+ ")]
        return dict(line.split("==", 1) for line in lines if "==" in line)

    def install(self, request: Request, folder: Path) -> None:
        result = run.call(self._all(request), timeout=_LONG)
        if not result.ok:
            raise _step_failed(result)

    def _all(self, request: Request) -> list[str]:
        index = ["--index-url", request.index_url] if request.index_url else []
        return [*self._words, *index, *request.first, *request.requirements]


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
        raise MissingTool("the environment has no pip", hint=f"`{_ensurepip(environment)}`, or `--with uv`")
    if Version.find(environment.pip) is not None and Version(environment.pip) < _FIRST_PIP:
        message = f"the environment's pip {environment.pip} cannot say beforehand what it would change"
        raise MissingTool(message, hint=f"`{environment.pip_command('install', '-U', 'pip')}`, or `--with uv`")
    return Pip(environment)


def _ensurepip(environment: Environment) -> Command:
    return Command(environment.program, "-m", "ensurepip", system=environment.os)


def last_words(err: str, out: str = "") -> str:
    """What pip or uv said at last, without its retries, and the setting behind it."""
    said = [line for line in err.strip().splitlines() if "Retrying (Retry(" not in line][-4:]
    return "\n".join([*said, *filter(None, [setting_behind(err + out)])])


def _fetch_failed(result: run.Result, request: Request, commands: Sequence[Command]) -> FetchFailed:
    tail = last_words(result.err, result.out)
    where = request.index_url or "the configured package index"
    message = f"the wheels could not be had from {where}; the environment is unchanged\n{tail}"
    return FetchFailed(message, hint="where that index can be reached, run:\n  " + "\n  ".join(commands))


def _step_failed(result: run.Result) -> StepFailed:
    tail = "\n".join((result.err.strip() or result.out.strip()).splitlines()[-8:])
    return StepFailed(f"the installer exited with code {result.code}\n{tail}", hint="the environment was restored")
