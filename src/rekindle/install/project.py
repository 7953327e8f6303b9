"""What the environment belongs to: a uv project that would undo an install, or an application's portable folder."""

from __future__ import annotations

from pathlib import Path

from rekindle.knowledge.gpu.capability import Capability
from rekindle.model.environment import Environment

_TURING = Capability(7, 5)


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
        if capabilities and min(capabilities) < _TURING:
            found.append("ComfyUI's own download `ComfyUI_windows_portable_nvidia_cu126.7z` is for this card, too")
    return found
