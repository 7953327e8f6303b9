"""What following links on Windows and on Linux has in common: what was found amiss, and the way that led there."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from rekindle.core.version import Version
from rekindle.formats.binary import Binary
from rekindle.knowledge.cuda.libraries import Owner, openmp_family
from rekindle.knowledge.cuda.library_packages import providers
from rekindle.model.platform import Platform
from rekindle.wheels.closure.linkage import Brought, Closure, Duplicate, LoadTime, MissingLibrary, Skew, WrongMachine

_SHOWN = 20
Libraries = Mapping[str, Binary | None]
"""Of a folder, by name; None is one that could not be read."""


class Walked(NamedTuple):
    """`torch`: it is torch itself. `extension`: it is loaded into a process with torch, `torch_here` if it is known."""

    torch: bool
    extension: bool
    torch_here: TorchLibraries | None


class Walk:
    system: str

    def __init__(self, what: Walked) -> None:
        self.torch, self.extension, self.torch_here = what
        self.files: list[Binary] = []
        self.brought: dict[str, Brought] = {}
        self.missing: dict[str, MissingLibrary] = {}
        self.skew: list[Skew] = []
        self.machines: list[WrongMachine] = []
        self.parent: dict[str, str] = {}
        self.links = self.symbols = 0

    def note_machine(self, target: Binary, found: Binary) -> None:
        if all(item.file != target.name for item in self.machines):
            self.machines.append(
                WrongMachine(
                    file=target.name,
                    machine=target.machine or "an unknown machine",
                    wanted_by=found.name,
                    wanted=found.machine or "an unknown machine",
                )
            )

    def key(self, library: str) -> str:
        return library.lower() if self.system == "windows" else library

    def miss(self, library: str, how: LoadTime, by: str, **more: Any) -> None:
        old = self.missing.get(self.key(library))
        wanted = (*old.wanted_by, by) if old else (by,)
        self.missing[self.key(library)] = MissingLibrary(library=library, how=how, wanted_by=wanted, chain=(), **more)

    def lack(self, file: str, library: str | None, absent: Sequence[str], torch: str | None = None) -> None:
        """Symbols that are not exported where they should be."""
        if absent:
            shown = tuple(absent[:_SHOWN])
            self.skew.append(Skew(file=file, library=library, symbols=shown, count=len(absent), torch=torch))

    def closed(self, **more: Any) -> Closure:
        return Closure(
            system=self.system,
            links=self.links,
            symbols=self.symbols,
            missing=self.all_missing(),
            skew=tuple(self.skew),
            wrong_machine=tuple(self.machines),
            brought=tuple(self.brought[name] for name in sorted(self.brought)),
            against=self.torch_here.label if self.torch_here else None,
            **more,
        )

    def copies(self) -> list[Duplicate]:
        """Two copies of one OpenMP runtime, whatever they are called; the one in torch/lib first."""
        families: dict[str, list[str]] = {}
        for found in self.files:
            family = openmp_family(found.file)
            if family:
                families.setdefault(family, []).append(found.name)
        groups = (sorted(names, key=torch_first) for names in families.values() if len(names) > 1)
        return [Duplicate(library=names[0].rpartition("/")[2], files=tuple(names), openmp=True) for names in groups]

    def comes_with_torch(self, library: str, owner: Owner | None, by: str) -> bool:
        """Is it torch that brings this library to an extension? If the torch here does not, that is noted."""
        if not self.extension:
            return False
        torchs = owner is not None and owner.owner == "torch"
        nvidias = owner is not None and (owner.owner == "torch-cuda" or owner.package == "nvidia-*")
        if not torchs and not nvidias:
            return False
        key, here = self.key(library), self.torch_here
        if here is None or (key in here.libraries if torchs else here.brings(library)):
            old = self.brought.get(key)
            wanted = (*old.wanted_by, by) if old else (by,)
            self.brought[key] = Brought(library=library, distribution="torch", wanted_by=wanted)
            return True
        built = f"CUDA {here.cuda}" if here.cuda else "no CUDA: it is a CPU build"
        self.miss(library, LoadTime.IMPORT, by, owner="torch", note=f"{here.label} does not include it ({built})")
        return True

    def all_missing(self) -> tuple[MissingLibrary, ...]:
        """Each with the way that leads to it, now that all links are known."""
        well = self._alternatives_that_load()
        found = []
        for name in sorted(self.missing):
            item = self.missing[name]
            spare = bool(item.wanted_by) and all(_family(by) in well for by in item.wanted_by)
            found.append(msgspec.structs.replace(self._with_way(item), alternative=spare))
        return tuple(found)

    def _alternatives_that_load(self) -> set[str]:
        """Families of files that differ in the CUDA only (`…_cuda118.so`, `…_cpu.so`), one of which lacks nothing.

        A package that brings one file per CUDA loads the one that fits; that the others do not is no fault.
        """
        families: dict[str, list[str]] = {}
        for found in self.files:
            families.setdefault(_family(found.name), []).append(found.name)
        lacking = {by for item in self.missing.values() for by in item.wanted_by}
        return {family for family, names in families.items() if len(names) > 1 and any(n not in lacking for n in names)}

    def _with_way(self, item: MissingLibrary) -> MissingLibrary:
        way = [item.wanted_by[0]]
        while way[0] in self.parent and self.parent[way[0]] not in way:
            way.insert(0, self.parent[way[0]])
        return msgspec.structs.replace(item, chain=(*way, item.library))


def matching(names: Collection[str], wanted: str, how: LoadTime) -> list[str]:
    """Those of the names that are wanted. Only what our own tables say is loaded while running may be a pattern: a `*`
    that a file asks for is a strange name, and is not found by every other."""
    if how is LoadTime.RUN_TIME and "*" in wanted:
        return [name for name in names if fnmatchcase(name, wanted)]
    return [wanted] if wanted in names else []


def _family(name: str) -> str:
    """`libx_#.so` for `libx_cuda118.so`, `libx_cuda126.so` and `libx_cpu.so`."""
    return re.sub(r"(?<=_)(?:cuda\d{2,3}|cpu|rocm\d*|xpu)(?=\.)", "#", name)


def torch_first(name: str) -> tuple[bool, str]:
    """Sorts the copy in torch/lib before all others."""
    return not name.startswith("torch/lib/"), name


# Names that only torch's own libraries can offer: `_ZN3c10…`, `_ZNK2at6Tensor…`, `_ZN5torch…`, and its C interface.
_TORCH_NAMES = re.compile(r"_Z(?:T[ISV])?(?:N[KVRO]*|)(?:3c10|2at|5torch|6caffe2)(?![a-z])|aoti_torch_")


class TorchLibraries(msgspec.Struct, frozen=True, kw_only=True):
    """`libraries` are the files of torch/lib by name (lower case on Windows); `links` what they in turn link."""

    label: str
    version: str
    cuda: Version | None
    cxx_abi: str | None
    system: str
    machine: str | None
    libraries: Mapping[str, Binary]
    links: frozenset[str]
    offered: frozenset[str]
    requires: tuple[str, ...] = ()

    def brings(self, library: str) -> bool:
        """Does it bring this library of NVIDIA's, by itself, by what it links, or by a package that it requires?"""
        name = library.lower() if self.system == "windows" else library
        if name in self.libraries or name in self.links:
            return True
        # By line (`-cu12`), not by package: NVIDIA's packages require each other, cuSPARSE for one nvJitLink.
        lines = {name.rpartition("-")[2] for name in self.requires if name.startswith("nvidia-")}
        rows = providers(library, Platform(self.system, self.machine or "x86_64"))
        return any(row.package.rpartition("-")[2] in lines for row in rows)


def torch_libraries(
    label: str, binaries: Sequence[Binary], *, version: str, cuda: Version | None, cxx_abi: str | None,
    requires: Sequence[str] = (),
) -> TorchLibraries:  # fmt: skip
    """From the compiled files of a torch package, read with their symbols."""
    inside = [found for found in binaries if found.name.lower().startswith("torch/lib/")]
    windows = any(found.pe for found in inside)
    names = {(found.file.lower() if windows else found.file): found for found in inside}
    links: set[str] = set()
    for found in inside:
        if found.elf:
            links.update(found.elf.needed)
        elif found.pe:
            links.update(name.lower() for name in (*found.pe.imports, *found.pe.delayed))
    offered = frozenset().union(*(found.symbols.defined for found in inside if found.symbols))
    return TorchLibraries(
        label=label,
        version=version,
        cuda=cuda,
        cxx_abi=cxx_abi,
        system="windows" if windows else "linux",
        machine=next((found.machine for found in inside if found.machine), None),
        libraries=names,
        links=frozenset(links),
        offered=offered,
        requires=tuple(requirement_name(line) for line in requires),
    )


def requirement_name(line: str) -> str:
    return re.split(r"[\s;<>=!~(\[]", line.strip(), maxsplit=1)[0].lower()


def is_torch_symbol(name: str) -> bool:
    return _TORCH_NAMES.match(name) is not None


def required(requires: Sequence[str], package: str) -> bool:
    return any(fnmatchcase(name, package) for name in requires)
