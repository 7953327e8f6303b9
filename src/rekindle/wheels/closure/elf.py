"""The closure of Linux libraries, as the dynamic linker sees them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from rekindle.formats.binary import Binary
from rekindle.knowledge.cuda.libraries import is_system_symbol, loaded_by, owner_of
from rekindle.wheels.closure.linkage import Closure, LoadTime
from rekindle.wheels.closure.walk import Libraries, Walk, Walked, is_torch_symbol, matching, required, requirement_name

_LIB = "torch/lib/"
# Names of Python's own C API: the interpreter offers them, and no library that is linked.
_PYTHON = re.compile(r"_?Py[A-Z_]")
# The driver's own functions have no version: cuCtxGetCurrent, nvmlInit_v2. cublasCreate and its kin are others'.
_DRIVER = re.compile(r"(cu|nvml)[A-Z]")


class ElfWalk(Walk):
    system = "linux"

    def __init__(
        self, what: Walked, binaries: Sequence[Binary], requires: Sequence[str], elsewhere: Sequence[Libraries]
    ) -> None:
        super().__init__(what)
        self.requires = [requirement_name(line) for line in requires]
        self.elsewhere = elsewhere
        self.unknown: dict[str, bool] = {}
        self.on_driver: set[str] = set()
        self.loaded: dict[str, Binary] = {}
        linked = (found for found in binaries if found.elf is not None and found.elf.kind in ("library", "program"))
        self.files = [found for found in linked if not (what.torch and found.name.startswith("torch/bin/"))]
        self.by_path = {found.name: found for found in self.files}
        self.by_name: dict[str, list[Binary]] = {}
        for found in self.files:
            for name in {found.file, found.elf.soname if found.elf else None} - {None}:
                self.by_name.setdefault(str(name), []).append(found)
        self.inherited = {folder for found in self.files if found.elf for folder in run_folders(found, found.elf.rpath)}
        self.wanted = {name for found in self.files if found.elf for name in found.elf.needed}
        self.opened = [name for found in self.files for row in loaded_by(found.file, "linux") for name in row.loads]

    def result(self) -> Closure:
        # What one file finds by its run path is loaded then, and serves every other one that asks for it by name.
        for found in self.files:
            for library in found.elf.needed if found.elf else ():
                target = self._on_run_path(found, library, LoadTime.IMPORT)
                if target is not None and target.machine == found.machine:
                    self.loaded.setdefault(library, target)
        targets = {found.name: self._follow(found) for found in self.files}
        for found in self.files:
            self._check_symbols(found, targets)
        return self.closed(duplicates=tuple(self.copies()))

    def _follow(self, found: Binary) -> list[Binary]:
        assert found.elf is not None
        wanted = [(library, LoadTime.IMPORT, "") for library in dict.fromkeys(found.elf.needed)]
        wanted += [(name, LoadTime.RUN_TIME, row.why) for row in loaded_by(found.file, "linux") for name in row.loads]
        targets = []
        for library, how, note in wanted:
            self.links += 1
            target = self._resolve(found, library, how, note)
            if target is not None:
                self.parent.setdefault(target.name, found.name)
                targets.append(target)
        return targets

    def _resolve(self, found: Binary, library: str, how: LoadTime, note: str) -> Binary | None:
        target = (
            self._on_run_path(found, library, how)
            or self._loaded_already(library, how)
            or self.loaded.get(library)
            or self._inherited(library)
        )
        if target is not None:
            if target.machine == found.machine:
                return target
            self.note_machine(target, found)
            return None
        for libraries in self.elsewhere:
            if any(matching(libraries, library, how)):
                self.unknown[found.name] = True
                return None
        owner = owner_of(library, "linux")
        if owner is not None and owner.owner in ("system", "driver"):
            if owner.owner == "driver":
                self.on_driver.add(found.name)
            return None
        self.unknown[found.name] = True
        if owner is not None and owner.package and required(self.requires, owner.package) and owner.owner != "torch":
            return None
        if self.comes_with_torch(library, owner, found.name):
            return None
        if owner is not None and owner.owner == "compiler" and self.torch:
            # torch itself cannot be imported without it.
            owner = None
        old = self.missing.get(library)
        if self._is_idle(found) and (old is None or old.owner == "optional"):
            idle = f"only `{found.file}` needs it, which nothing in the package loads"
            self.miss(library, how, found.name, owner="optional", note=idle)
            return None
        stray = next(iter(self.by_name.get(library, [])), None)
        if stray is not None:
            note = f"it is at `{stray.name}`, but no run path of `{found.name}` points there"
        self.miss(
            library,
            LoadTime.IMPORT if old and old.how is LoadTime.IMPORT else how,
            found.name,
            owner=owner.owner if owner and not stray else None,
            note=note or (owner.note if owner else ""),
            inside=stray.name if stray else None,
            package=owner.package if owner and not stray else None,
        )
        return None

    def _is_idle(self, found: Binary) -> bool:
        """Is this a library in torch that no other file links or opens? By its version it was made to be linked."""
        names = {found.file, found.elf.soname if found.elf else None}
        opened = any(fnmatchcase(found.file, pattern) for pattern in self.opened)
        return self.torch and ".so." in found.file and not names & self.wanted and not opened

    def _on_run_path(self, found: Binary, library: str, how: LoadTime) -> Binary | None:
        assert found.elf is not None
        # A name with a folder in it is taken from where one stands, or from anywhere: no run path is asked.
        for where in () if "/" in library else run_folders(found, (*found.elf.rpath, *found.elf.runpath)):
            inside = matching(self.by_path, posixpath.join(where, library), how)
            if inside:
                return self.by_path[inside[0]]
        return None

    def _loaded_already(self, library: str, how: LoadTime) -> Binary | None:
        """A torch package loads its own libraries first; later ones find them by their name."""
        named = [one for name in matching(self.by_name, library, how) for one in self.by_name[name]]
        return next((one for one in named if self.torch and one.name.startswith(_LIB)), None)

    def _inherited(self, library: str) -> Binary | None:
        """An RPATH, unlike a RUNPATH, also holds for the libraries that the file loads in turn."""
        named = self.by_name.get(library, [])
        return next((one for one in named if posixpath.dirname(one.name) in self.inherited), None)

    def _check_symbols(self, found: Binary, targets: Mapping[str, Sequence[Binary]]) -> None:
        """Symbols without a version that nothing in the package offers, nor the system.

        If a library that is linked lies outside the package it may be there; then only names that are torch's own are
        held against it.
        """
        if found.symbols is None or found.elf is None:
            return
        reached = _reached(found, targets)
        outside = any(self.unknown.get(one.name) for one in reached)
        wanted = [n for n in found.symbols.unversioned if not _PYTHON.match(n) and not is_system_symbol(n)]
        if any(one.name in self.on_driver for one in reached):
            wanted = [name for name in wanted if not _DRIVER.match(name)]
        self.symbols += len(wanted)
        if outside:
            known = self.torch or self.torch_here is not None
            wanted = [name for name in wanted if known and is_torch_symbol(name)]
        offered = [one.symbols.defined for one in reached if one.symbols is not None]
        if found.elf.kind == "library" and self.torch:
            offered += [one.symbols.defined for one in self.files if one.symbols and one.name.startswith(_LIB)]
        here = self.torch_here if self.extension else None
        if here is not None:
            # In a process with torch the symbols of all its libraries are there, whichever of them are linked.
            offered += [here.offered, *(one.symbols.defined for one in self.files if one.symbols)]
        absent = sorted(name for name in wanted if not any(name in names for names in offered))
        torchs = here is not None and any(map(is_torch_symbol, absent))
        if len(reached) > 1 or torchs:
            self.lack(found.name, None, absent, here.label if here and torchs else None)


def run_folders(found: Binary, paths: Sequence[str]) -> list[str]:
    """The folders of the package that run paths name; the top of it is the empty text."""
    folders = []
    for path in paths:
        if path.startswith(("$ORIGIN", "${ORIGIN}")):
            rest = path.removeprefix("$ORIGIN").removeprefix("${ORIGIN}").lstrip("/")
            where = posixpath.normpath(posixpath.join(posixpath.dirname(found.name), rest or "."))
            folders.append("" if where == "." else where)
    return folders


def _reached(found: Binary, targets: Mapping[str, Sequence[Binary]]) -> list[Binary]:
    """The file and everything it links, directly or not."""
    seen = {found.name: found}
    queue = [found]
    while queue:
        for target in targets.get(queue.pop().name, ()):
            if target.name not in seen:
                seen[target.name] = target
                queue.append(target)
    return list(seen.values())
