"""A package that no build of will ever run on this card: whatever failed with it, leaving it out is the fix."""

from __future__ import annotations

from collections.abc import Mapping

from rekindle.core.command import pip
from rekindle.core.findings import Fix
from rekindle.diagnose.conditions import plain_name
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.logs.extension_homes import ExtensionHome, home

_WHO = ("owner", "failing", "module", "package")
"""The fields that name whose the failure is."""


def fix(fields: Mapping[str, str], facts: Facts) -> Fix | None:
    """None where the card is not known, or is new enough."""
    if not facts.gpus:
        return None
    newest = max(facts.gpus)
    row = next((row for row in _packages(fields) if row.begins is not None and newest < row.begins), None)
    if row is None:
        return None
    card = facts.gpu_name or newest.sm
    text = f"Leave {row.package} out: it has code from {row.begins} on, and no build of it runs on this card ({card})."
    told = f" {row.instead[:1].upper()}{row.instead[1:]}." if row.instead else ""
    return Fix(text=text + told, commands=(pip("uninstall", "-y", row.package, system=facts.os),))


def _packages(fields: Mapping[str, str]) -> list[ExtensionHome]:
    found = (home(plain_name(fields[name])) for name in _WHO if name in fields)
    return [row for row in found if row is not None]
