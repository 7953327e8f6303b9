"""Windows libraries: machine, imports, delay imports, exports with ordinals and forwarders, version, signature.

`pefile` reads all of this and much more, but stops near 8,192 exports unless told otherwise (torch_cpu.dll has 59,121),
takes seconds over such a file, and wants the whole of it in memory. The tests compare the two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from rekindle.core.errors import BadInput
from rekindle.formats.access import Buffer, Bytes, broken, exactly, numbers, unpack
from rekindle.formats.dll_names import DATA_SECTIONS

MAGIC = b"MZ"

_MACHINES = {0x14C: "x86", 0x8664: "x86_64", 0xAA64: "aarch64", 0x1C4: "arm"}
_EXPORT, _IMPORT, _RESOURCE, _SIGNATURE, _DELAY = 0, 1, 2, 4, 13
_MOST_SYMBOLS = 1_000_000
_MOST_LIBRARIES = 4096
_SMALL = 96 << 20
_LONGEST_NAME = 8192
# The Windows loader takes 96 sections.
_MOST_SECTIONS = 96
_LETTERS_PER_STEP = 1024
_STRING_OBJECT, _NUMBER_OBJECT = 64, 64


class Pe(msgspec.Struct, frozen=True, kw_only=True):
    """`imports` and `delayed` are, per library, the symbols wanted: names, or `#17` for ordinal 17.

    `sections` are name, offset and size in the file.
    """

    name: str
    machine: str
    bits: int
    kind: str
    imports: dict[str, tuple[str, ...]] = {}
    delayed: dict[str, tuple[str, ...]] = {}
    exports: frozenset[str] = frozenset()
    ordinals: frozenset[int] = frozenset()
    forwarders: dict[str, str] = {}
    file_version: str | None = None
    signed: bool = False
    sections: tuple[tuple[str, int, int], ...] = ()

    def offers(self, symbol: str) -> bool:
        """Is `symbol`, a name or an ordinal written `#17`, exported here?"""
        return int(symbol[1:]) in self.ordinals if symbol.startswith("#") else symbol in self.exports


class PeSection(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: int
    size: int
    offset: int
    stored: int


def read(source: Bytes) -> Pe:
    image = _PeImage(source)
    exports, ordinals, forwarders = image.exports()
    return Pe(
        name=source.name,
        machine=image.machine,
        bits=image.bits,
        kind=image.kind,
        imports=dict(image.imports()),
        delayed=dict(image.delayed()),
        exports=exports,
        ordinals=ordinals,
        forwarders=forwarders,
        file_version=image.version(),
        signed=image.directory(_SIGNATURE)[1] > 0,
        sections=tuple((section.name, section.offset, section.stored) for section in image.sections),
    )


def sections(source: Bytes) -> list[PeSection]:
    return _PeImage(source).sections


def regions(head: bytes, size: int) -> list[tuple[int, int]]:
    """The ranges that `read` will ask for, judged by the first bytes of the file: the sections with the tables."""
    try:
        image = _PeImage(Buffer(head))
    except Exception:
        return [(0, len(head))]
    wanted = [(0, min(len(head), 1 << 16))]
    for number in (_EXPORT, _IMPORT, _RESOURCE, _DELAY):
        address, length = image.directory(number)
        section = image.section(address) if length else None
        if section:
            # Of a section with a hundred megabytes, what lies around the table: its names are near it. Whole pages.
            near = max(address - section.address - _SMALL // 2, 0) & ~0xFFFF if section.stored > _SMALL else 0
            begin, end = section.offset + near, section.offset + section.stored
            wanted.append((begin, min(end, begin + _SMALL)))
    return wanted


def data_ranges(head: bytes) -> list[tuple[int, int]]:
    """Where the constants of a file lie, judged by its first bytes."""
    try:
        found = _PeImage(Buffer(head)).sections
    except BadInput:
        return []
    return [(each.offset, each.offset + each.stored) for each in found if each.name.startswith(DATA_SECTIONS)]


class _PeImage:
    def __init__(self, source: Bytes) -> None:
        self.source = source
        if source.read(0, 2) != MAGIC:
            raise broken(source, "it is not a Windows program or library")
        (at,) = unpack("<I", source, 0x3C, "the PE header's place")
        if exactly(source, at, 4, "the PE header") != b"PE\0\0":
            raise broken(source, "it has no PE header")
        machine, sections, _, _, _, optional, traits = unpack("<HHIIIHH", source, at + 4, "the PE header")
        self.machine = _MACHINES.get(machine, f"machine-{machine:#x}")
        self.kind = "library" if traits & 0x2000 else "program"
        header = exactly(source, at + 24, optional, "the optional header")
        if len(header) < 96 or header[:2] not in (b"\x0b\x01", b"\x0b\x02"):
            raise broken(source, "its optional header is of an unknown kind")
        self.bits = 64 if header[:2] == b"\x0b\x02" else 32
        self.base: int = struct.unpack_from("<Q" if self.bits == 64 else "<I", header, 24 if self.bits == 64 else 28)[0]
        begin = 112 if self.bits == 64 else 96
        room = max(len(header) - begin, 0) // 8
        self._directories = [struct.unpack_from("<II", header, begin + 8 * n) for n in range(min(room, 16))]
        if sections > _MOST_SECTIONS:
            raise broken(source, f"it has {sections} sections, more than Windows takes")
        table = exactly(source, at + 24 + optional, 40 * sections, "the section table")
        self.sections = [_section(table[n : n + 40]) for n in range(0, len(table), 40)]
        self._strings: dict[int, bytes] = {}
        self._last: PeSection | None = None

    def directory(self, number: int) -> tuple[int, int]:
        return self._directories[number] if number < len(self._directories) else (0, 0)

    def section(self, address: int) -> PeSection | None:
        for section in (self._last, *self.sections) if self._last else self.sections:
            if section.address <= address < section.address + max(section.size, section.stored):
                self._last = section
                return section
        return None

    def place(self, address: int, what: str) -> tuple[int, PeSection]:
        section = self.section(address)
        if section is None or address - section.address >= section.stored:
            raise broken(self.source, f"{what} would lie outside every section")
        return section.offset + address - section.address, section

    def data(self, address: int, size: int, what: str) -> bytes:
        return exactly(self.source, self.place(address, what)[0], size, what)

    def text(self, address: int, what: str) -> str:
        """A zero-terminated name. Names lie side by side, so a page of them is read at a time."""
        at, section = self.place(address, what)
        # Pages are counted from the section, so that a member of a zip of which only this section was kept will do.
        page = section.offset + ((at - section.offset) & ~0xFFFF)
        if page not in self._strings:
            if len(self._strings) > 64:
                self._strings.clear()
            end = min(page + (1 << 16) + _LONGEST_NAME, section.offset + section.stored)
            self._strings[page] = self.source.read(page, end - page)
        data = self._strings[page]
        begin = at - page
        end = data.find(b"\0", begin, begin + _LONGEST_NAME)
        if end < 0:
            raise broken(self.source, f"{what} does not end")
        self.source.budget.spend(1 + (end - begin) // _LETTERS_PER_STEP)
        self.source.budget.keep(_STRING_OBJECT + end - begin)
        return data[begin:end].decode("utf-8", "replace")

    def imports(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        address, size = self.directory(_IMPORT)
        if not size:
            return
        for number in range(_MOST_LIBRARIES):
            entry = self.data(address + 20 * number, 20, "the import table")
            names, _, _, library, table = struct.unpack("<5I", entry)
            if not (library and (names or table)):
                return
            yield self.text(library, "the name of an imported library"), self._thunks(names or table)
        raise broken(self.source, "its import table does not end")

    def delayed(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        address, size = self.directory(_DELAY)
        if not size:
            return
        for number in range(min(size // 32, _MOST_LIBRARIES)):
            entry = self.data(address + 32 * number, 32, "the delay-import table")
            traits, library, _, _, names = struct.unpack("<5I", entry[:20])
            if not library:
                return
            # Before Visual C++ 7 these were addresses in memory, not relative ones.
            base = 0 if traits & 1 else self.base
            yield (
                self.text(library - base, "the name of a delay-loaded library"),
                self._thunks(names - base) if names else (),
            )

    def _thunks(self, address: int) -> tuple[str, ...]:
        width = self.bits // 8
        layout = "<Q" if width == 8 else "<I"
        at, section = self.place(address, "an import list")
        end = section.offset + section.stored
        wanted: list[str] = []
        while len(wanted) < _MOST_SYMBOLS:
            block = self.source.read(at, min(4096, end - at))
            for (value,) in struct.iter_unpack(layout, block[: len(block) // width * width]):
                if not value:
                    return tuple(wanted)
                if value >> (self.bits - 1):
                    self.source.budget.spend()
                    self.source.budget.keep(_STRING_OBJECT)
                    wanted.append(f"#{value & 0xFFFF}")
                else:
                    wanted.append(self.text((value & 0x7FFFFFFF) + 2, "the name of an imported symbol"))
            if len(block) < 4096:
                break
            at += len(block)
        raise broken(self.source, "an import list does not end")

    def exports(self) -> tuple[frozenset[str], frozenset[int], dict[str, str]]:
        address, size = self.directory(_EXPORT)
        if not size:
            return frozenset(), frozenset(), {}
        table = self.data(address, 40, "the export table")
        base, functions, count, at_functions, at_names, at_ordinals = struct.unpack_from("<6I", table, 16)
        if functions > _MOST_SYMBOLS or count > _MOST_SYMBOLS:
            raise broken(self.source, "it says that it exports more than any real library")
        places = numbers("I", self.data(at_functions, 4 * functions, "the export table") if functions else b"")
        names = numbers("I", self.data(at_names, 4 * count, "the export names") if count else b"")
        indexes = numbers("H", self.data(at_ordinals, 2 * count, "the export ordinals") if count else b"")
        exports: set[str] = set()
        forwarders: dict[str, str] = {}
        for where, index in zip(names, indexes, strict=True):
            name = self.text(where, "the name of an exported symbol")
            exports.add(name)
            # An export that points back into the export table is a text: the library and symbol it stands for.
            if index < functions and address <= places[index] < address + size:
                forwarders[name] = self.text(places[index], "a forwarder")
        self.source.budget.spend(functions // 8)
        self.source.budget.keep(_NUMBER_OBJECT * sum(1 for place in places if place))
        ordinals = frozenset(base + index for index, place in enumerate(places) if place)
        return frozenset(exports), ordinals, forwarders

    def version(self) -> str | None:
        """The file's: in the fixed block of the version resource, found by its signature."""
        address, size = self.directory(_RESOURCE)
        section = self.section(address) if size else None
        if section is None:
            return None
        data = self.source.read(section.offset, min(section.stored, 8 << 20))
        at = data.find(b"\xbd\x04\xef\xfe")
        if at < 0 or at + 24 > len(data):
            return None
        return _dotted(*struct.unpack_from("<2I", data, at + 8))


def _section(row: bytes) -> PeSection:
    name, size, address, stored, offset = struct.unpack_from("<8s4I", row)
    return PeSection(
        name=name.rstrip(b"\0").decode("ascii", "replace"), address=address, size=size, offset=offset, stored=stored
    )


def _dotted(high: int, low: int) -> str:
    return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"
