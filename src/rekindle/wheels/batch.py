"""Several wheels, or a folder of them, in one call: what stands for what, and the answers together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core.errors import NotFound
from rekindle.wheels.inspect.inspection import Inspection
from rekindle.wheels.repair.repair import Repair
from rekindle.wheels.verify.verify import Verification


class Inspections(msgspec.Struct, frozen=True, kw_only=True):
    """What `inspect` prints with `--json` for more than one."""

    schema: str = "rekindle.inspections/1"
    inspections: tuple[Inspection, ...]


class Verifications(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` prints with `--json` for more than one."""

    schema: str = "rekindle.verifications/1"
    verifications: tuple[Verification, ...]


class Repairs(msgspec.Struct, frozen=True, kw_only=True):
    """What `repair` prints with `--json` for more than one."""

    schema: str = "rekindle.repairs/1"
    repairs: tuple[Repair, ...]


def wheels_in(given: Path) -> list[Path]:
    """The wheel itself, or every wheel of a folder."""
    if not given.is_dir():
        return [given]
    found = sorted(given.glob("*.whl"))
    if not found:
        raise NotFound(f"there is no wheel in `{given}`", hint="name a folder with `.whl` files, or a wheel")
    return found


def subjects(given: Sequence[str]) -> list[str]:
    """What `inspect` and `verify` look at: a folder of wheels stands for each of them, any other for itself."""
    found: list[str] = []
    for text in given:
        path = Path(text)
        wheels = sorted(path.glob("*.whl")) if "://" not in text and path.is_dir() else []
        found += [str(wheel) for wheel in wheels] if wheels else [text]
    return found
