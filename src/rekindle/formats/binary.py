"""Any compiled file, read once: what kind it is, what it needs and offers, and its GPU code."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Any

import msgspec

from rekindle.core.errors import BadInput
from rekindle.formats import elf, fatbin, pe, static
from rekindle.formats.access import Bytes, Slice, blocks
from rekindle.formats.archive import Inflated
from rekindle.formats.dll_names import DllNames
from rekindle.formats.elf import Elf, Symbols
from rekindle.formats.pe import Pe
from rekindle.knowledge.gpu.gpu_code import GpuCode

_REGISTERED = ".nv_fatbin"
_SUFFIXES = (".dll", ".pyd", ".exe", ".so", ".a", ".lib", ".o", ".obj", ".fatbin", ".cubin", ".dylib")


class Binary(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """`format` is `elf`, `pe`, `static`, `fatbin` or `other`; `problem` says why the headers could not be read.

    `texts` are those of the texts asked for that occur anywhere in the file.
    """

    name: str
    size: int
    format: str
    pe: Pe | None = None
    elf: Elf | None = None
    symbols: Symbols | None = None
    containers: tuple[fatbin.Container, ...] = ()
    problem: str | None = None
    texts: frozenset[str] = frozenset()
    dlls: tuple[str, ...] = ()
    """The DLLs that a Windows file names in its data, in small letters; those of its import tables are others."""

    @cached_property
    def code(self) -> GpuCode:
        return fatbin.gpu_code(self.name, self.containers)

    @property
    def machine(self) -> str | None:
        return self.pe.machine if self.pe else self.elf.machine if self.elf else None

    @property
    def file(self) -> str:
        """The file's own name, without its folder."""
        return self.name.rpartition("/")[2]


def codes(binaries: Iterable[Binary]) -> list[GpuCode]:
    """The GPU code of those of the files that have any."""
    found = [each.code for each in binaries if each.containers]
    return [code for code in found if code.containers or code.aside]


def is_binary(name: str) -> bool:
    """Is this a name of a compiled file? `libcudnn.so.9` and `libgomp-a34b3233.so.1.0.0` are."""
    last = name.rpartition("/")[2].lower()
    stem, found, version = last.partition(".so.")
    # `libcrypto.so.1.1.1k` is one too.
    return last.endswith(_SUFFIXES) or bool(
        found and stem and version[:1].isdigit() and version.replace(".", "").isalnum()
    )


def read(source: Bytes, *, symbols: bool = False, texts: Collection[str] = (), units: bool = False) -> Binary:
    """Read a file once.

    With `symbols`, the dynamic symbols of an ELF library too (a PE's come with its tables); with `texts`, which of
    these occur in it; with `units`, from which source file each container of GPU code comes, if that can be had.
    """
    search = _Search(texts)
    names = DllNames(())
    if isinstance(source, Inflated):
        head = b""
        at = 0

        def keep(first: bytes) -> list[tuple[int, int]]:
            nonlocal head, names
            head = first[:4096]
            names = DllNames(pe.data_ranges(head))
            return _regions(first, source.size)

        def look(data: bytes) -> None:
            nonlocal at
            stream.push(data)
            search.push(data)
            names.look(at, data)
            at += len(data)

        stream = fatbin.Stream(source.size, source.name, source.budget)
        source.walk(keep, look)
        containers = stream.finish()
    else:
        head = source.read(0, 4096)
        containers = fatbin.scan(source)
        if texts:
            for data in blocks(source, 0, source.size):
                search.push(data)
        ranges = pe.data_ranges(head)
        names = DllNames(ranges)
        for begin, end in ranges:
            for data in blocks(source, begin, end):
                names.look(begin, data)
                begin += len(data)
    found = _understood(source, head, tuple(containers), frozenset(search.found), symbols=symbols, units=units)
    if found.pe is None:
        return found
    return msgspec.structs.replace(found, dlls=names.beside((*found.pe.imports, *found.pe.delayed, found.file)))


class _Search:
    """Which of some texts occur in a stream of pieces, one lying across two pieces included."""

    def __init__(self, texts: Collection[str]) -> None:
        self.found: set[str] = set()
        self._left = {text: text.encode() for text in texts}
        self._tail = b""
        self._keep = max((len(word) for word in self._left.values()), default=1) - 1

    def push(self, data: bytes) -> None:
        if not self._left:
            return
        seam = self._tail + data[: self._keep]
        for text, word in list(self._left.items()):
            if word in seam or word in data:
                self.found.add(text)
                del self._left[text]
        self._tail = (self._tail + data)[-self._keep :] if len(data) < self._keep else data[-self._keep :]


def _understood(
    source: Bytes,
    head: bytes,
    containers: tuple[fatbin.Container, ...],
    texts: frozenset[str],
    *,
    symbols: bool,
    units: bool,
) -> Binary:
    kind = _kind(head)
    if kind == "other" and containers:
        kind = "fatbin"
    facts: dict[str, Any] = {"texts": texts}
    try:
        if kind == "elf":
            facts["elf"] = elf.read(source)
            if containers:
                containers = tuple(fatbin.in_sections(containers, elf.sections(source)))
            if containers and units and not isinstance(source, Inflated):
                found_units = elf.units(source)
                containers = tuple(msgspec.structs.replace(one, unit=found_units.get(one.offset)) for one in containers)
            if symbols:
                facts["symbols"] = elf.symbols(source)
        elif kind == "pe":
            facts["pe"] = found = pe.read(source)
            containers = tuple(fatbin.in_sections(containers, found.sections))
        elif kind == "static" and containers and not isinstance(source, Inflated):
            containers = tuple(fatbin.in_sections(containers, _sections_of_objects(source)))
    except BadInput as error:
        facts["problem"] = error.message
    return Binary(name=source.name, size=source.size, format=kind, containers=containers, **facts)


def _sections_of_objects(source: Bytes) -> list[tuple[str, int, int]]:
    """The sections of all objects in a static archive, as places in the archive.

    Each object is sorted out by itself: one that has only relocatable code is what the linker takes it from, so its
    section is given the other one's name. Objects that are not ELF are taken as one section.
    """
    found: list[tuple[str, int, int]] = []
    for part in static.parts(source):
        if source.read(part.offset, 4) == elf.MAGIC:
            inner = elf.sections(Slice(source, part.offset, part.size, part.name))
            linked = any(name.startswith(_REGISTERED) for name, _, _ in inner)
            found += [
                (name if linked or not name.startswith("__nv_rel") else _REGISTERED, part.offset + begin, size)
                for name, begin, size in inner
            ]
        else:
            found.append((_REGISTERED, part.offset, part.size))
    return found


def _kind(head: bytes) -> str:
    if head[:4] == elf.MAGIC:
        return "elf"
    if head[:2] == pe.MAGIC:
        return "pe"
    if head[:8] == static.MAGIC and not head[8:].startswith(b"debian-binary"):
        return "static"
    return "fatbin" if head[:4] == fatbin.MAGIC else "other"


def _regions(head: bytes, size: int) -> list[tuple[int, int]]:
    kind = _kind(head)
    if kind == "elf":
        return elf.regions(head, size)
    if kind == "pe":
        return pe.regions(head, size)
    return [(0, len(head))]
