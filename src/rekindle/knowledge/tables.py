"""Reads the data files, once each, and lays a user's overlay over them.

Each room keeps its tables beside the look-ups that read them: `*.json` was read off real artefacts by the scripts in
`tools/observe/`, `*.toml` are rules a person wrote down. Every row says where it comes from. `--knowledge DIR` (or
REKINDLE_KNOWLEDGE) names a folder with files of the same names: their rows replace the shipped rows with the same key,
and add to them, without a release.
"""

import os
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rekindle.core import codec
from rekindle.core.errors import BadInput, NotFound

T = TypeVar("T")

_HERE = Path(__file__).parent
ROOMS = ("gpu", "cuda", "torch", "logs", "builds")
_overlay: Path | None = None


class Evidence(str, Enum):
    """How we know. Only what was read off a binary counts as confirmed."""

    BINARY = "binary"
    SCRIPT = "script"
    NOTES = "notes"

    @property
    def confirmed(self) -> bool:
        return self is Evidence.BINARY

    @property
    def phrase(self) -> str:
        return "read off the real files" if self.confirmed else "not yet confirmed"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What every row of every table has."""

    source: str
    observed_at: str
    evidence: Evidence


def use_overlay(folder: Path | None) -> None:
    """Lay the files of `folder` over the shipped tables from now on."""
    global _overlay
    if folder is not None and not folder.is_dir():
        message = f"there is no folder `{folder}` to read knowledge from"
        raise NotFound(message, hint="`--knowledge` takes a folder with files named like the shipped tables")
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
    if not shipped.exists():
        return codec.from_builtins(_plain(over), kind, name=f"`{over}`")
    base = _plain(shipped)
    return codec.from_builtins(_merge(base, _plain(over)), kind, name=f"`{over}`")


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


def _merge(base: Any, over: Any) -> Any:
    """Tables merge by key, lists of rows by their `id` or `name`; anything else is replaced."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: _merge(base.get(key), value) for key, value in over.items()}}
    if isinstance(base, list) and isinstance(over, list):
        keyed = {_key(row): index for index, row in enumerate(base) if _key(row) is not None}
        rows = list(base)
        for row in over:
            if _key(row) in keyed:
                rows[keyed[_key(row)]] = row
            else:
                rows.append(row)
        return rows
    return over


def _key(row: Any) -> Any:
    if not isinstance(row, dict):
        return None
    return next((row[name] for name in ("id", "name", "version", "minor", "cuda", "capability") if name in row), None)


_load: Any = lru_cache(maxsize=None)(_read_merged)
_CACHES: list[Any] = [_load]


def cached(function: T) -> T:
    """`lru_cache` for a look-up without arguments, emptied when the overlay changes."""
    cache: Any = lru_cache(maxsize=None)(function)  # type: ignore[arg-type]
    _CACHES.append(cache)
    result: T = cache
    return result
