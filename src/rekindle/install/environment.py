"""The environment to install into: the one that was named or is active, and never the system's own Python."""

from __future__ import annotations

from pathlib import Path

from rekindle.core.errors import NotFound, UsageError
from rekindle.machine.python.environment import find
from rekindle.model.environment import Environment


def locate(where: Path | None) -> Environment:
    """The environment that packages go into. An error if it cannot run here, or if other programs live on it."""
    if where is not None and not where.exists():
        message = f"there is no Python environment at `{where}`"
        raise NotFound(message, hint=f"make one with `python -m venv {where}`")
    environment = find(where)
    if environment.kind == "system":
        if where is None:
            message = "no environment is active, and none was named"
            raise UsageError(message, hint="activate one, or name it: `rekindle install ENV`")
        message = f"`{where}` is the system's Python, and other programs depend on its packages"
        raise UsageError(message, hint="make an environment first: `python -m venv ENV`, then `rekindle install ENV`")
    if environment.python is None:
        raise NotFound(f"`{environment.root}` does not say which Python it has", hint="name its python instead")
    environment.program  # noqa: B018 - an error if nothing can be run there
    return environment
