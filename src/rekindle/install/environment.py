"""The environment to install into: the one named or active, never the system's own Python; and what it belongs to."""

from __future__ import annotations

from pathlib import Path

from rekindle.core.errors import NotFound, UsageError
from rekindle.knowledge.gpu.capability import Capability
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


_MAXWELL, _TURING = Capability(5, 0), Capability(7, 5)


def notes(environment: Environment, capabilities: tuple[Capability, ...]) -> list[str]:
    """What the owner of this environment has to know before it is changed."""
    root = Path(environment.root)
    found = [f"changes the Python in `{environment.program}`"]
    if any((folder / "uv.lock").is_file() for folder in (root, root.parent)):
        found.append(
            "this environment belongs to a uv project: the next `uv sync` would undo the install. "
            "`rekindle plan --as uv` prints the tables for its pyproject.toml"
        )
    if environment.kind == "embedded" and (root.parent / "ComfyUI").is_dir():
        found.append("a ComfyUI portable folder: its update scripts keep what the constraints name")
        if capabilities and _MAXWELL <= min(capabilities) < _TURING:
            found.append("ComfyUI's own download `ComfyUI_windows_portable_nvidia_cu126.7z` is for this card, too")
    return found
