"""Reads the data files, once each, and merges a user's overlay into them.

Each room keeps its tables beside the look-ups that read them: `*.json` was read off real artefacts by the scripts in
`tools/observe/`, `*.toml` are rules a person wrote down. Every row says where it comes from. `--knowledge DIR` (or
REKINDLE_KNOWLEDGE) names a folder with files of the same names: their rows replace the built-in rows with the same key
(see `keys`) and add to them, without a release. Between the two lie the tables that `rekindle knowledge update` took
(see `updates`).
"""

import os
import re
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rekindle.core import codec
from rekindle.core.errors import BadInput, NotFound
from rekindle.core.paths import knowledge_folder
from rekindle.knowledge import keys, refusal

T = TypeVar("T")
R = TypeVar("R", bound="Row")
LookUp = TypeVar("LookUp", bound=Callable[..., Any])

_HERE = Path(__file__).parent
ROOMS = ("gpu", "cuda", "torch", "logs", "builds")
_overlay: Path | None = None
_LOADING = threading.RLock()


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


class NamedRow(Row, frozen=True, kw_only=True):
    id: str


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
    for each in _CACHES:
        each.cache_clear()


def observed(name: str, kind: type[T]) -> T:
    return _loaded(f"{name}.json", kind)


def decided(name: str, kind: type[T]) -> T:
    return _loaded(f"{name}.toml", kind)


def rows(file: str, name: str, kind: type[R]) -> Callable[[], tuple[R, ...]]:
    """The look-up of one list of a table: it is read when somebody first asks."""

    @cached
    def look_up() -> tuple[R, ...]:
        return tuple(getattr(_loaded(file, table_of(**{name: kind})), name))

    return look_up


@cache
def table_of(**lists: type[Row]) -> Any:
    """The type of a table with these lists of rows."""
    return msgspec.defstruct("Table", [(name, tuple.__class_getitem__((kind, ...))) for name, kind in lists.items()])


def _loaded(name: str, kind: type[T]) -> T:
    """Threads that ask for the same table at once get the same one: the others wait for the first."""
    with _LOADING:
        table: T = _load(relative_path(name), kind)
    return table


@cache
def relative_path(name: str) -> str:
    """Where a table lies below `knowledge/`: `gpu/gpus.json`. One that only an overlay has keeps its name."""
    return next((f"{room}/{name}" for room in ROOMS if (_HERE / room / name).is_file()), name)


def names(folder: str) -> tuple[str, ...]:
    """The tables of a folder that holds one file per entry (`torch/patches`), the overlay's own ones among them."""
    roots = [_HERE, *([over] if (over := overlay_folder()) else [])]
    return tuple(sorted({path.stem for root in roots for path in (root / folder).glob("*.*") if path.is_file()}))


def raw(relative: str) -> bytes:
    """A built-in file with those merged into it beside it, as bytes: what a fingerprint is made of."""
    return b"".join(_bytes(path) for path in (_HERE / relative, *_merged_files(relative)))


def every() -> tuple[str, ...]:
    """The built-in tables by their paths below `knowledge/`."""
    found = (path for pattern in ("*/*.json", "*/*.toml") for path in _HERE.glob(pattern))
    return tuple(sorted(path.relative_to(_HERE).as_posix() for path in found))


def built_in(relative: str) -> Any:
    """A built-in table as plain values, without what is merged into it."""
    return _plain(_HERE / relative) if (_HERE / relative).is_file() else {}


def plain(relative: str) -> Any:
    """A table as plain values, with everything merged into it."""
    table = built_in(relative)
    for path in _merged_files(relative):
        table = merge(table, _plain(path), keys.of_table(relative, table))
    return table


def built_in_date() -> str:
    """The day of the newest row on PyTorch's releases that came with Rekindle."""
    rows = built_in("torch/torch_releases.json")["releases"]
    return max(str(row["observed_at"]) for row in rows)


def update_folder() -> Path | None:
    """The tables taken with `rekindle knowledge update`; None when there are none."""
    home = knowledge_folder()
    current = home / "current"
    if not os.path.lexists(current):
        return None
    # A pipe in its place would be waited for.
    name = current.read_text(encoding="ascii", errors="replace").strip() if current.is_file() else "no file"
    folder = home / name
    if not re.fullmatch(r"bundle-[\w-]+", name) or not folder.is_dir():
        message = f"the update `{name[:60]}` in `{home}` is damaged"
        raise BadInput(message, hint="`rekindle knowledge reset` goes back to the built-in tables")
    return folder


def _read_merged(relative: str, kind: Any) -> Any:
    over = _merged_files(relative)
    if not over:
        return _read(_HERE / relative, kind)
    table = built_in(relative)
    for path in over:
        base, own = table, _plain(path)
        if base and isinstance(own, dict) and path == _overlay_file(relative) and not own.keys() & base.keys():
            message = f"`{path}` has none of the lists of `{relative}`"
            raise BadInput(message, hint=f"its rows stand in {' or '.join(f'`{each}`' for each in base)}")
        table = merge(base, own, keys.of_table(relative, base))
        try:
            result = codec.from_builtins(table, kind, name=f"`{path}`")
        except BadInput as error:
            raise refusal.of(own, base, kind, path, error) from error
    return result


def _merged_files(relative: str) -> tuple[Path, ...]:
    """What is merged into a table, in order: the update's file, then the overlay's."""
    found = []
    update = update_folder()
    if update is not None and (update / relative).is_file():
        found.append(update / relative)
    over = _overlay_file(relative)
    return (*found, over) if over else tuple(found)


def overlay_folder() -> Path | None:
    return _overlay or (Path(os.environ["REKINDLE_KNOWLEDGE"]) if os.environ.get("REKINDLE_KNOWLEDGE") else None)


def _overlay_file(relative: str) -> Path | None:
    folder = overlay_folder()
    places = (folder / relative, folder / Path(relative).name) if folder else ()
    return next((place for place in places if place.is_file()), None)


def _read(path: Path, kind: Any) -> Any:
    if path.suffix == ".json":
        return codec.from_json(_bytes(path), kind, name=f"`{path.name}`")
    packed = path.with_suffix(".toml-json")  # as the wheel is built: only what came with Rekindle has one
    if path.is_relative_to(_HERE) and packed.is_file():
        return codec.from_json(_bytes(packed), kind, name=f"`{path.name}`")
    return codec.from_builtins(_toml(path), kind, name=f"`{path.name}`")


@cache
def _toml(path: Path) -> Any:
    """A file is parsed once, for all its lists."""
    return codec.from_toml(_bytes(path), Any, name=f"`{path.name}`")


def _plain(path: Path) -> Any:
    try:
        return _read(path, Any)
    except OSError as error:
        message = f"cannot read `{path}`: {error}"
        raise BadInput(message, hint="check `--knowledge`, or `rekindle knowledge reset`") from error


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


@cache
def _bytes(path: Path) -> bytes:
    """A file is read once, for its rows, its date and a fingerprint alike."""
    return path.read_bytes()


_load: Any = lru_cache(maxsize=None)(_read_merged)
_CACHES: list[Any] = [_load, _bytes, _toml]


def cached(function: LookUp, *, most: int | None = None) -> LookUp:
    """`lru_cache` for a look-up, emptied when the overlay changes. None: there are only so many answers."""
    cache: Any = lru_cache(maxsize=most)(function)
    _CACHES.append(cache)
    result: LookUp = cache
    return result


def cached_questions(function: LookUp) -> LookUp:
    """The same for what people ask, which has no end: a server keeps the last of them."""
    return cached(function, most=128)
