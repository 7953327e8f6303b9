"""What a package asks of another, as its METADATA spells it: a stranger's words, so it may be anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_LONGEST = 4096


def canonical_name(name: str) -> str:
    """A project's name as indexes compare it: `Flash_Attn` is `flash-attn`. (packaging's own costs 12 ms to import.)"""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement(line: str) -> Requirement | None:
    """The requirement in a line; None for what is none, or longer or deeper than any real one."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(line) if len(line) <= _LONGEST else None
    except (InvalidRequirement, RecursionError):
        return None


def place(windows: bool, **more: str) -> dict[str, str]:
    """What markers ask of Windows, or of Linux."""
    names = ("Windows", "win32", "nt") if windows else ("Linux", "linux", "posix")
    return {**dict(zip(("platform_system", "sys_platform", "os_name"), names, strict=True)), **more}


def holds(asked: Requirement, place: Mapping[str, str]) -> bool:
    """Whether it is asked for in such an environment; so is what nobody can compare."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

    known: dict[str, Any] = {**place, "extra": ""}
    try:
        return asked.marker is None or asked.marker.evaluate(known)
    except (UndefinedComparison, UndefinedEnvironmentName, RecursionError):
        return True
