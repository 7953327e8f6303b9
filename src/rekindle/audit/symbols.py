"""Which symbols of torch a module wants and the installed torch does not have.

An extension compiled against another torch fails at import with "undefined symbol" (Linux) or WinError 127 (Windows),
which names nothing. Here the two tables are compared. A module that wants only torch's C interface (`aoti_torch_…`,
`torch_…`) is written for the stable ABI and survives a change of torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rekindle.audit.contents import Module
from rekindle.core.errors import RekindleError
from rekindle.core.kept import stamp_of
from rekindle.formats import elf, pe
from rekindle.formats.access import File

if TYPE_CHECKING:
    from rekindle.formats.binary import Binary

_OWN = ("libtorch", "libc10")
_LIBRARIES = ("libtorch", "libc10", "libshm", "torch", "c10", "shm")
# Namespaces of torch in mangled names: c10, at, torch, caffe2, as itself or inside a nested name.
_MANGLED = ("3c10", "2at", "5torch", "6caffe2")
_STABLE = ("aoti_torch_", "torch_")


class WantedSymbols(msgspec.Struct, frozen=True, kw_only=True):
    """`missing` are symbols that nothing in torch offers; `stable` when only the C interface is wanted."""

    count: int
    missing: tuple[str, ...]
    stable: bool
    problem: str | None = None


class Offered:
    """What the libraries of one torch export, read once when first asked for."""

    def __init__(self, torch: Path) -> None:
        self._folder = torch / "lib"
        self._by_library: dict[str, frozenset[str]] = {}

    @cached_property
    def key(self) -> str:
        """What tells this torch from another: the sizes and times of its libraries."""
        from hashlib import sha256  # loads OpenSSL

        libraries = sorted(path for path in self._folder.glob("*") if path.suffix in (".so", ".dll"))
        facts = [(path.name, path.stat().st_size, stamp_of(path.stat())) for path in libraries]
        return sha256(repr(facts).encode()).hexdigest()[:16]

    @property
    def empty(self) -> bool:
        """There is no library to hold anything against."""
        return not any(path.suffix == ".dll" or ".so" in path.suffixes for path in self._folder.glob("*"))

    @cached_property
    def everything(self) -> set[str]:
        """The symbols of all Linux libraries together: the loader does not ask which one a symbol is from."""
        found: set[str] = set()
        for path in self._linux_libraries():
            with contextlib.suppress(RekindleError), File(path) as source:
                found |= elf.symbols(source).defined
        return found

    def _linux_libraries(self) -> list[Path]:
        """Those in `torch/lib`, and torch's own in the folder that its links lead to.

        Debian's torch has links there, and none for libtorch_cuda.
        """
        here = list(self._folder.glob("*.so*"))
        elsewhere = {path.resolve().parent for path in here if path.is_symlink()} - {self._folder.resolve()}
        beside = [path for folder in elsewhere for name in _OWN for path in folder.glob(f"{name}*.so*")]
        return sorted({path.resolve() for path in (*here, *beside)})

    def of(self, library: str) -> frozenset[str] | None:
        """The exports of one Windows DLL by name; None when torch has no such DLL."""
        key = library.lower()
        if key not in self._by_library:
            path = next((path for path in self._folder.glob("*.dll") if path.name.lower() == key), None)
            if path is None:
                return None
            with File(path) as source:
                self._by_library[key] = pe.read(source).exports
        return self._by_library[key]


def uses_torch(module: Module) -> bool:
    """Is it linked against torch's libraries?"""
    return links_torch(module.needed)


def links_torch(needed: Iterable[str]) -> bool:
    return any(name.lower().startswith(_LIBRARIES) for name in needed)


def wanted(path: Path, module: Module, offered: Offered) -> WantedSymbols:
    try:
        with File(path) as source:
            if module.format != "elf":
                return _of_imports(pe.read(source), offered)
            return _of_undefined(elf.symbols(source), offered)
    except RekindleError as error:
        return WantedSymbols(count=0, missing=(), stable=False, problem=error.message)


def missing_in(binary: Binary, offered: Offered) -> tuple[str, ...]:
    """The symbols that a file, from wherever it was read, wants of torch and this torch does not have."""
    if binary.elf is not None and binary.symbols is not None:
        return _of_undefined(binary.symbols, offered).missing if links_torch(binary.elf.needed) else ()
    return _of_imports(binary.pe, offered).missing if binary.pe is not None else ()


def _of_undefined(found: elf.Symbols, offered: Offered) -> WantedSymbols:
    asked = {name for name in found.undefined if _is_torchs(name)}
    # torch's Python bindings and the caster templates are defined in each module itself; only what is asked counts.
    return _answer(asked, asked - offered.everything)


def _of_imports(image: pe.Pe, offered: Offered) -> WantedSymbols:
    asked: set[str] = set()
    missing: set[str] = set()
    for library, names in image.imports.items():
        exports = offered.of(library)
        if exports is None:
            continue
        asked |= set(names)
        missing |= {name for name in names if name not in exports and not name.startswith("#")}
    return _answer(asked, missing)


def _answer(asked: set[str], missing: Iterable[str]) -> WantedSymbols:
    stable = bool(asked) and all(name.startswith(_STABLE) for name in asked)
    return WantedSymbols(count=len(asked), missing=tuple(sorted(missing)), stable=stable)


def _is_torchs(name: str) -> bool:
    if name.startswith(_STABLE):
        return True
    return name.startswith("_Z") and any(mark in name[:24] for mark in _MANGLED)
