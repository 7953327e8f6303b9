"""The environment to install into: a virtual environment, a conda environment, or any other interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from rekindle.core.errors import NotFound, UsageError
from rekindle.core.paths import state_folder
from rekindle.machine.host import Host
from rekindle.machine.python import interpreters


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """`site` is where packages go. `pip` is the version of the pip inside, None when it has none."""

    python: str
    prefix: str
    version: str
    kind: str
    site: str
    pip: str | None = None

    @property
    def folder(self) -> Path:
        """Where Rekindle keeps what it needs to undo: inside the environment, on its own file system."""
        return state_folder(Path(self.prefix))


def locate(where: Path | None) -> Environment:
    """The environment at a folder or interpreter; the active one when none is named. Never the system's own Python."""
    path = _interpreter(where) if where is not None else _active()
    found = interpreters.ask(Host(), str(path))
    if found.version is None or found.prefix is None or not found.site_packages:
        message = f"`{path}` does not answer as a Python: {found.trouble or 'no version'}"
        raise NotFound(message, hint="name an environment's folder or its python")
    environment = Environment(
        python=str(path),
        prefix=found.prefix,
        version=f"{found.version.major}.{found.version.minor}",
        kind=found.kind,
        site=found.site_packages[0],
        pip=_pip_of(Path(found.site_packages[0])),
    )
    if environment.kind == "system":
        message = f"`{path}` is the system's Python, and other programs live on its packages"
        raise UsageError(message, hint="make an environment first: `python -m venv ENV`, then `rekindle install ENV`")
    return environment


def _interpreter(where: Path) -> Path:
    if where.is_file():
        return where.absolute()
    names = ("Scripts/python.exe", "python.exe", "bin/python", "bin/python3", "python_embeded/python.exe")
    for name in names:
        if (where / name).is_file():
            return (where / name).absolute()
    message = f"there is no Python environment at `{where}`"
    hint = f"make one with `python -m venv {where}`" if not where.exists() else "name its folder or its python"
    raise NotFound(message, hint=hint)


def _active() -> Path:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(variable):
            return _interpreter(Path(os.environ[variable]))
    if sys.prefix != sys.base_prefix:
        return Path(sys.executable)
    message = "no environment is active, and none was named"
    raise UsageError(message, hint="activate one, or name it: `rekindle install ENV`")


def _pip_of(site: Path) -> str | None:
    found = sorted(site.glob("pip-*.dist-info"))
    return found[-1].name.removeprefix("pip-").removesuffix(".dist-info") if found else None
