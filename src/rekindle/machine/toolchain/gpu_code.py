"""GPU code in libraries of this machine: torch's own, and cuDNN's. Read from their headers, nothing is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rekindle.core import codec
from rekindle.core.errors import RekindleError
from rekindle.knowledge.gpu.capability import Target
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.machine.host import Run


def of(run: Run, path: str) -> GpuCode | None:
    """The GPU code of one file; None when it could not be read, or was not recorded."""
    found = run.ask(f"gpu code of {path}", lambda: _ask(path))
    if not isinstance(found, dict):
        return None
    try:
        return codec.from_builtins(found, GpuCode)
    except RekindleError:
        return None


def targets(codes: tuple[GpuCode, ...]) -> tuple[Target, ...]:
    every = [group for code in codes for group in (*code.groups, *code.aside_groups)]
    return tuple(sorted({target for group in every for target in group.targets}))


def partial(codes: tuple[GpuCode, ...]) -> tuple[Target, ...]:
    """Targets that some containers lack, among those that hold code for more than one architecture."""
    lacking: set[Target] = set()
    for code in codes:
        spanning = [g for g in code.groups if len({target.capability.major for target in g.targets}) > 1] or code.groups
        every = {target for group in spanning for target in group.targets}
        lacking |= {target for target in every if not all(target in group.targets for group in spanning)}
    return tuple(sorted(lacking))


def _ask(path: str) -> Any:
    from rekindle.formats import binary
    from rekindle.formats.access import File

    try:
        with File(Path(path)) as file:
            return codec.to_builtins(binary.read(file).code)
    except (RekindleError, OSError):
        return None
