"""Several wheels, or a folder of them, in one call: what stands for what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rekindle.core.errors import NotFound


def wheels_in(given: Path) -> list[Path]:
    """The wheel itself, or every wheel of a folder."""
    if not given.is_dir():
        return [given]
    found = sorted(given.glob("*.whl"))
    if not found:
        raise NotFound(f"there is no wheel in `{given}`", hint="name a folder with `.whl` files, or a wheel")
    return found


def _matching(path: Path) -> list[Path]:
    """The wheels of `dist/*.whl`, where no shell has written them out: on Windows, and in the settings of a CI job."""
    wanted = "*" in path.name and path.name.endswith(".whl") and not path.exists()
    found = sorted(path.parent.glob(path.name)) if wanted else []
    if wanted and not found:
        raise NotFound(f"no wheel matches `{path}`", hint="name the folder, or a wheel")
    return found


def subjects(given: Sequence[str]) -> list[str]:
    """What `inspect` and `verify` look at: a folder of wheels stands for each of them, any other for itself."""
    found: list[str] = []
    for text in given:
        path = Path(text)
        wheels = sorted(path.glob("*.whl")) if "://" not in text and path.is_dir() else _matching(path)
        found += [str(wheel) for wheel in wheels] if wheels else [text]
    return found
