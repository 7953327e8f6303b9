"""Reads the data files, once each, and merges a user's overlay into them.

Each room keeps its tables beside the look-ups that read them: `*.json` was read off real artefacts by the scripts in
`tools/observe/`, `*.toml` are rules a person wrote down. Every row says where it comes from. `--knowledge DIR` (or
REKINDLE_KNOWLEDGE) names a folder with files of the same names: their rows replace the built-in rows with the same key
(see `keys`) and add to them, without a release.
"""

import os
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rekindle.core import codec
from rekindle.core.errors import BadInput, NotFound
from rekindle.knowledge import keys, refusal

T = TypeVar("T")

_HERE = Path(__file__).parent
ROOMS = ("gpu", "cuda", "torch", "logs", "builds")
_overlay: Path | None = None


class Evidence(str, Enum):
    """How we know, best first. Only what was read off a binary counts as confirmed."""

    BINARY = "binary"
    """Read off the real files."""
    FIELD = "field"
    """Printed by people on real machines, with a pointer and a date."""
    SCRIPT = "script"
    """Written in a build script or in upstream's own configuration."""
    NOTES = "notes"
    """Said in documentation, release notes or by somebody."""

    @property
    def confirmed(self) -> bool:
        return self is Evidence.BINARY

    @property
    def phrase(self) -> str:
        phrases = {Evidence.BINARY: "read off the real files", Evidence.FIELD: "reported from real machines"}
        return phrases.get(self, "not yet confirmed")

    @staticmethod
    def weakest(evidence: "Iterable[Evidence]") -> "Evidence":
        """What an answer that stands on all of them may claim."""
        order = list(Evidence)
        return max(evidence, key=order.index, default=Evidence.NOTES)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What every row of every table has."""

    source: str
    observed_at: str
    evidence: Evidence


def use_overlay(folder: Path | None) -> None:
    """Merge the files of `folder` into the built-in tables from now on."""
    global _overlay
    if folder is not None and not folder.is_dir():
        message = f"no such folder: `{folder}`"
        raise NotFound(message, hint="`--knowledge` takes a folder with files named like the built-in tables")
    _overlay = folder
    forget()


def forget() -> None:
    """Drop every table that was read, here and in the look-ups built on them."""
    for cache in _CACHES:
        cache.cache_clear()


def observed(name: str, kind: type[T]) -> T:
    table: T = _load(relative_path(f"{name}.json"), kind)
    return table


def decided(name: str, kind: type[T]) -> T:
    table: T = _load(relative_path(f"{name}.toml"), kind)
    return table


def relative_path(name: str) -> str:
    """Where a table lies below `knowledge/`: `gpu/gpus.json`. One that only an overlay has keeps its name."""
    return next((f"{room}/{name}" for room in ROOMS if (_HERE / room / name).is_file()), name)


def names(folder: str) -> tuple[str, ...]:
    """The tables of a folder that holds one file per entry (`torch/patches`), the overlay's own ones among them."""
    roots = [_HERE, *([over] if (over := overlay_folder()) else [])]
    return tuple(sorted({path.stem for root in roots for path in (root / folder).glob("*.*") if path.is_file()}))


def raw(relative: str) -> bytes:
    """A shipped file with the overlay's beside it, as bytes: what a fingerprint is made of."""
    over = _overlay_file(relative)
    return (_HERE / relative).read_bytes() + (over.read_bytes() if over else b"")


def _read_merged(relative: str, kind: Any) -> Any:
    shipped = _HERE / relative
    over = _overlay_file(relative)
    if over is None:
        return _read(shipped, kind)
    base = _plain(shipped) if shipped.exists() else {}
    own = _plain(over)
    try:
        return codec.from_builtins(merge(base, own, keys.of_table(relative)), kind, name=f"`{over}`")
    except BadInput as error:
        raise refusal.of(own, base, kind, over, error) from error


def overlay_folder() -> Path | None:
    return _overlay or (Path(os.environ["REKINDLE_KNOWLEDGE"]) if os.environ.get("REKINDLE_KNOWLEDGE") else None)


def _overlay_file(relative: str) -> Path | None:
    folder = overlay_folder()
    if folder is None:
        return None
    for candidate in (folder / relative, folder / Path(relative).name):
        if candidate.is_file():
            return candidate
    return None


def _read(path: Path, kind: Any) -> Any:
    data = path.read_bytes()
    return (codec.from_json if path.suffix == ".json" else codec.from_toml)(data, kind, name=f"`{path.name}`")


def _plain(path: Path) -> Any:
    try:
        return _read(path, Any)
    except OSError as error:
        message = f"cannot read `{path}`: {error}"
        raise BadInput(message, hint="check the folder given with `--knowledge`") from error


def merge(base: Any, over: Any, rows: dict[str, keys.Key]) -> Any:
    """A list of rows merges by its table's key, an object by its names; anything else is replaced."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    merged = dict(base)
    for name, value in over.items():
        if name in rows and isinstance(value, list) and isinstance(base.get(name), list):
            merged[name] = _merge_rows(base[name], value, rows[name])
        else:
            merged[name] = merge(base.get(name), value, {})
    return merged


def _merge_rows(base: list[Any], over: list[Any], key: keys.Key) -> list[Any]:
    rows = list(base)
    places = {keys.value(row, key): index for index, row in enumerate(base)}
    for row in over:
        place = places.get(keys.value(row, key)) if isinstance(row, dict) else None
        if place is None:
            rows.append(row)
        else:
            rows[place] = row
    return rows


_load: Any = lru_cache(maxsize=None)(_read_merged)
_CACHES: list[Any] = [_load]


def cached(function: T) -> T:
    """`lru_cache` for a look-up without arguments, emptied when the overlay changes."""
    cache: Any = lru_cache(maxsize=None)(function)  # type: ignore[arg-type]
    _CACHES.append(cache)
    result: T = cache
    return result
