"""What differs between two machines, or between two shells of one: fact by fact, and PATH entry by entry."""

from __future__ import annotations

from typing import Any

import msgspec

from rekindle.core import codec
from rekindle.machine.model import Machine

# They change from minute to minute and explain nothing.
_RESTLESS = frozenset({"memory.available", "disks.free", "unread"})


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """`what` is the fact, `first` and `second` what each side has of it; None where it has nothing."""

    what: str
    first: str | None
    second: str | None


def differences(first: Machine, second: Machine) -> tuple[Difference, ...]:
    one, other = _facts(first), _facts(second)
    found = [
        Difference(what=name, first=one.get(name), second=other.get(name))
        for name in dict.fromkeys((*one, *other))
        if one.get(name) != other.get(name)
    ]
    return (*path_differences(first, second), *found)


def path_differences(first: Machine, second: Machine) -> tuple[Difference, ...]:
    """Entries of PATH that only one has; and, when both have the same ones, the first that changed its turn."""
    one, other = _path(first), _path(second)
    found = [Difference(what="PATH entry", first=entry, second=None) for entry in one if entry not in other]
    found += [Difference(what="PATH entry", first=None, second=entry) for entry in other if entry not in one]
    common = [entry for entry in one if entry in other]
    turned = [entry for entry in other if entry in one]
    if common != turned:
        place = next(turn for turn, entry in enumerate(common) if turned[turn] != entry)
        what = f"PATH order, from entry {place + 1} of those in both"
        found.append(Difference(what=what, first=common[place], second=turned[place]))
    return tuple(found)


def _path(machine: Machine) -> list[str]:
    text = next((value for name, value in machine.environment.items() if name.upper() == "PATH"), "")
    return [entry for entry in text.split(";" if machine.os == "windows" else ":") if entry]


def _facts(machine: Machine) -> dict[str, str]:
    found: dict[str, str] = {}
    _flatten("", codec.to_builtins(machine), found)
    return {
        name: value
        for name, value in found.items()
        if name.split("[")[0] not in _RESTLESS and not _restless(name) and name.upper() != "ENVIRONMENT.PATH"
    }


def _restless(name: str) -> bool:
    plain = "".join(part.split("]")[-1] for part in name.split("["))
    return plain in _RESTLESS


def _flatten(name: str, value: Any, found: dict[str, str]) -> None:
    """Lists of things are told apart by what they are, not by their turn, so that one more moves none of the rest."""
    if isinstance(value, dict):
        for key, item in value.items():
            _flatten(f"{name}.{key}" if name else key, item, found)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, dict) for item in value):
        for turn, item in enumerate(value):
            _flatten(f"{name}[{_identity(item, turn)}]", item, found)
    elif isinstance(value, (list, tuple)):
        if value:
            found[name] = ", ".join(str(item) for item in value)
    elif value is not None:
        found[name] = str(value)


def _identity(item: Any, turn: int) -> str:
    if isinstance(item, dict):
        for key in ("root", "bus", "role", "path", "name"):
            if item.get(key):
                return str(item[key])
    return str(turn)
