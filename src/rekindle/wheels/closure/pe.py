"""The closure of Windows libraries, as torch's loader sees them."""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.formats.binary import Binary
from rekindle.knowledge.cuda.libraries import is_test_library, loaded_by, loaded_by_name, openmp_family, owner_of
from rekindle.knowledge.cuda.library_packages import providers
from rekindle.model.platform import WINDOWS
from rekindle.wheels.closure.linkage import Closure, Duplicate, LoadTime, OutsideLibrary
from rekindle.wheels.closure.walk import Libraries, Walk, Walked, matching

_LIB = "torch/lib/"


class PeWalk(Walk):
    system = "windows"

    def __init__(
        self,
        what: Walked,
        binaries: Sequence[Binary],
        elsewhere: Sequence[tuple[str, bool, Libraries]],
        python: str | None,
    ) -> None:
        super().__init__(what)
        self.python = python
        self.elsewhere = elsewhere
        every = [found for found in binaries if found.pe]
        self.system_files = sorted(found.name for found in every if _is_no_packages(found.file))
        self.files = [found for found in every if not what.torch or _is_loaded(found.name)]
        self.by_name: dict[str, list[Binary]] = {}
        for found in self.files:
            self.by_name.setdefault(found.file.lower(), []).append(found)
        self.outside: dict[str, OutsideLibrary] = {}

    def result(self) -> Closure:
        # Those that are loaded first come first, so that the way to a missing library begins at the loader's own door.
        queue = sorted(self.files, key=lambda found: (not found.name.lower().endswith((".pyd", ".exe")), found.name))
        seen = {found.name for found in queue}
        while queue:
            found = queue.pop(0)
            for target in self._follow(found):
                if target.name not in seen:
                    seen.add(target.name)
                    queue.append(target)
        own = self.files if self.torch else []
        return self.closed(
            outside=tuple(self.outside[name] for name in sorted(self.outside)),
            duplicates=tuple(self._duplicates()),
            system_files=tuple(self.system_files),
            tests=tuple(f.name for f in own if f.name.lower().startswith(_LIB) and is_test_library(f.file, "windows")),
        )

    def _follow(self, found: Binary) -> list[Binary]:
        """The files outside the package that this one leads to; what it finds amiss is noted."""
        assert found.pe is not None
        further = []
        for how, table in ((LoadTime.IMPORT, found.pe.imports), (LoadTime.DELAYED, found.pe.delayed)):
            for library, symbols in table.items():
                self.links += 1
                target = self._resolve(found, library, how)
                if target is None:
                    self._against_torch(found, library, symbols)
                    continue
                self.parent.setdefault(target.name, found.name)
                if target.machine != found.machine:
                    self.note_machine(target, found)
                    continue
                self._check_symbols(found, target, symbols)
                further.append(target)
        rows = loaded_by(found.file, "windows")
        wanted = [(name, LoadTime.RUN_TIME, row.why) for row in rows if row.needed for name in row.loads]
        wanted += [(name, LoadTime.NAMED, "") for name in loaded_by_name(found.file, found.dlls)]
        for library, how, note in wanted:
            self.links += 1
            target = self._resolve(found, library, how, note=note)
            if target is not None:
                self.parent.setdefault(target.name, found.name)
                further.append(target)
        return further

    def _resolve(self, found: Binary, library: str, how: LoadTime, note: str = "") -> Binary | None:
        owner = owner_of(library, "windows")
        if owner is not None and owner.owner == "system":
            return None
        target = self._in_package(found, library, how)
        if target is not None:
            return target
        for label, sure, libraries in self.elsewhere:
            lowered = {name.lower(): name for name in libraries}
            name = next((lowered[name] for name in matching(lowered, library.lower(), how)), None)
            if name is not None:
                if not sure:
                    self._note_outside(library, label, found.name)
                return libraries[name]
        if owner is not None and owner.owner == "driver":
            return None
        if self.comes_with_torch(library, owner, found.name):
            return None
        old = self.missing.get(library.lower())
        self.miss(
            library,
            min(old.how, how, key=list(LoadTime).index) if old else how,
            found.name,
            owner=owner.owner if owner else None,
            note=(owner.note if owner else "") or note,
            package=provider_pin(library, owner.package if owner else None, how, self.python),
        )
        return None

    def _in_package(self, found: Binary, library: str, how: LoadTime) -> Binary | None:
        folder = found.name.rpartition("/")[0]
        named = [one for name in matching(self.by_name, library.lower(), how) for one in self.by_name[name]]
        beside = [one for one in named if one.name.rpartition("/")[0] == folder]
        in_lib = [one for one in named if one.name.lower().startswith(_LIB)]
        return next(iter(beside or in_lib or named), None)

    def _check_symbols(self, found: Binary, target: Binary, symbols: Sequence[str]) -> None:
        assert target.pe is not None
        self.symbols += len(symbols)
        self.lack(found.name, target.name, [symbol for symbol in symbols if not self._offers(target, symbol)])

    def _against_torch(self, found: Binary, library: str, symbols: Sequence[str]) -> None:
        """What it imports from a DLL that the torch here brings: the names must be exported there."""
        here = self.torch_here
        target = here.libraries.get(library.lower()) if here and library.lower() in self.brought else None
        if here is None or target is None or target.pe is None:
            return
        self.symbols += len(symbols)
        self.lack(found.name, target.name, [each for each in symbols if not target.pe.offers(each)], here.label)

    def _offers(self, target: Binary, symbol: str) -> bool:
        assert target.pe is not None
        if not target.pe.offers(symbol):
            return False
        # A forwarder only promises that another library has it.
        library, _, name = target.pe.forwarders.get(symbol, "").rpartition(".")
        onward = self.by_name.get(f"{library.lower()}.dll", []) if library else []
        return not onward or any(one.pe is not None and one.pe.offers(name) for one in onward)

    def _note_outside(self, library: str, label: str, by: str) -> None:
        old = self.outside.get(library.lower())
        wanted = (*old.wanted_by, by) if old else (by,)
        self.outside[library.lower()] = OutsideLibrary(library=library, where=label, wanted_by=wanted)

    def _duplicates(self) -> list[Duplicate]:
        """The same library in two places, and two copies of one OpenMP runtime whatever they are called."""
        found = [
            Duplicate(library=name, files=tuple(one.name for one in files))
            for name, files in sorted(self.by_name.items())
            if name.endswith(".dll") and len(files) > 1 and not openmp_family(name)
        ]
        return [*found, *self.copies()]


def _is_loaded(name: str) -> bool:
    """Of a torch package, what `import torch` loads: torch/lib and the extension modules, not torch/bin."""
    low = name.lower()
    return low.endswith(".pyd") or (low.startswith(_LIB) and low.endswith(".dll")) or not low.startswith("torch/")


def _is_no_packages(file: str) -> bool:
    """Windows' own or the driver's: no package may have a copy."""
    owner = owner_of(file, "windows")
    return owner is not None and owner.bundle == "no"


def provider_pin(library: str, package: str | None, how: LoadTime, python: str | None) -> str | None:
    """The package that has exactly this DLL, with its version: `mkl` of today no longer has mkl_intel_thread.1.dll."""
    if package is None or ("*" in library and how is not LoadTime.RUN_TIME):
        return None
    own = [row for row in providers(library, WINDOWS) if row.package == package and not row.yanked]
    rows = [row for row in own if row.installs_on(python)]
    # Without the Python it is not known which version pip finds: pip chooses.
    sure = rows and (python is not None or not rows[0].pythons)
    return f"{package}=={rows[0].version}" if sure else package
