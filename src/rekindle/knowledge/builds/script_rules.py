"""What people write into build scripts and should not: pins, pairs, compiler switches, renamed variables."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, decided


class Pin(Row, frozen=True, kw_only=True):
    """A pinned version that does harm. `versions` is a specifier as pip writes them."""

    package: str
    versions: str
    why: str
    instead: str
    system: str | None = None
    python_below: Version | None = None


class Pair(Row, frozen=True, kw_only=True):
    """Things that do not go together although each is right."""

    id: str
    found: str
    why: str
    cuda_from: Version | None = None
    torch_to: Version | None = None
    arch_from: Capability | None = None
    system: str | None = None
    fails: bool = False


class Switch(Row, frozen=True, kw_only=True):
    """A compiler switch with the values that exist."""

    name: str
    values: tuple[str, ...]
    why: str


class Renamed(Row, frozen=True, kw_only=True):
    """A variable that changed its name; between the two releases it was not looked at."""

    old: str
    new: str
    old_until: Version
    new_from: Version


class ScriptRules(msgspec.Struct, frozen=True, kw_only=True):
    pin: tuple[Pin, ...]
    pair: tuple[Pair, ...]
    switch: tuple[Switch, ...]
    renamed: tuple[Renamed, ...]


def script_rules() -> ScriptRules:
    return decided("review", ScriptRules)
