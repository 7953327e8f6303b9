"""conda-forge's package into a conda environment. conda keeps its own history, so undo is its own `--revision`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rekindle.core import files, run
from rekindle.core.command import Command
from rekindle.core.errors import FetchFailed, MissingTool, StepFailed
from rekindle.core.programs import which
from rekindle.model.environment import Environment
from rekindle.stack.route import Route

_LONG = 3600.0


def program() -> str:
    """The conda that is active, or one on PATH; mamba does as well."""
    named = os.environ.get("CONDA_EXE", "")
    found = named if Path(named).is_absolute() else which("conda") or which("mamba")
    if not found:
        message = "conda is not on PATH"
        raise MissingTool(message, hint="open the prompt in which `conda` works, and run the same command there")
    return found


def packages(route: Route) -> tuple[str, ...]:
    """What conda is asked for; a plan that names no pins gets the plain ones of its stack."""
    return route.conda or (f"python={route.python}", f"pytorch={route.torch}=cuda*", f"cuda-version={route.cuda}")


def revision(environment: Environment) -> int:
    """The number of the environment's state now, to come back to."""
    result = run.call([program(), "list", "--revisions", "--json", "-p", environment.root], timeout=120)
    run.checked(result, doing="read the history of the conda environment")
    return int(json.loads(result.out)[-1]["rev"])


def command(environment: Environment, route: Route) -> Command:
    """The call, into this environment whichever is active where it is typed."""
    words = ("install", "-y", "-p", environment.root, "-c", "conda-forge", *packages(route))
    return Command("conda", *words, system=environment.os)


def install(environment: Environment, route: Route) -> None:
    own = command(environment, route)
    result = run.call([program(), *map(str, own.words[1:])], timeout=_LONG)
    if not result.ok:
        tail = "\n".join((result.err.strip() or result.out.strip()).splitlines()[-6:])
        message = f"conda could not install it; it has changed nothing\n{tail}"
        raise FetchFailed(message, hint=f"by hand:\n  {own}")


def pinned(environment: Environment) -> Path:
    """conda's own constraints file: what it names is not replaced by a later `conda install` or `update`."""
    return Path(environment.root) / "conda-meta" / "pinned"


def pin(environment: Environment, route: Route) -> Path:
    path = pinned(environment)
    before = files.plain_text(path) if path.is_file() else ""
    others = [line for line in before.splitlines() if not line.startswith("pytorch ")]
    files.write_text(path, "\n".join([*others, f"pytorch =={route.torch}=cuda*"]) + "\n")
    return path


def go_back(environment: Environment, number: int) -> None:
    command = [program(), "install", "-y", "-p", environment.root, "--revision", str(number)]
    result = run.call(command, timeout=_LONG)
    if not result.ok:
        message = f"conda could not go back to revision {number}"
        raise StepFailed(message, hint=f"by hand: `{Command('conda', *command[1:])}`")
