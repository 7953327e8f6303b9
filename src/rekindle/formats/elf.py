"""Linux libraries: what they need to load, what they offer, and how new a glibc and libstdc++ they want.

Read from the program headers and the dynamic section, as the loader does, so that a stripped file or one that
`patchelf` has rearranged is read like any other. `pyelftools` does this too, at 20 microseconds a symbol and with the
whole file at hand; libtorch_cpu.so has 75,000 symbols and may be a member of a zip. The tests compare the two.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from rekindle.core.version import Version
from rekindle.formats.access import Buffer, Bytes, File, broken, exactly, numbers

MAGIC = b"\x7fELF"

_MACHINES = {3: "x86", 62: "x86_64", 40: "arm", 183: "aarch64", 21: "ppc64le", 243: "riscv64", 190: "cuda"}
_KINDS = {1: "object", 2: "program", 3: "library", 4: "core"}
_LOAD, _DYNAMIC, _PROPERTY = 1, 2, 0x6474E553
_NOBITS, _FILE = 8, 4
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 4, 5, 6, 10, 14, 15, 29
_GNU_HASH, _VERSYM, _VERNEED, _VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
_LARGEST_TABLE = 512 << 20
# The Linux loader takes programs with at most 1,170 headers; real libraries have a dozen.
_MOST_SEGMENTS = 1170
_MOST_NEEDED = 2048
_LONGEST_NAME, _LONGEST_SYMBOL = 4096, 65536
# Finding, decoding and sorting in that many symbols is a step's worth of work, or that many letters of them.
_SYMBOLS_PER_STEP, _LETTERS_PER_STEP = 4, 1024
_STRING_OBJECT = 64
_HEAD = 64 << 20
_SMALL = 16 << 20


class Elf(msgspec.Struct, frozen=True, kw_only=True):
    """`versions` are the symbol versions wanted, by library: `libc.so.6` → `GLIBC_2.17`, …

    `isa` is the x86-64 level that the file's own note demands (`v3` means AVX2); None when it says nothing, which is
    the rule and no promise.
    """

    name: str
    machine: str
    bits: int
    kind: str
    needed: tuple[str, ...] = ()
    soname: str | None = None
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    versions: dict[str, tuple[str, ...]] = {}
    isa: str | None = None

    def floor(self, family: str) -> Version | None:
        """The newest version of a family (`GLIBC`, `GLIBCXX`, `CXXABI`) that is wanted."""
        wanted = [
            Version(text.removeprefix(family + "_"))
            for names in self.versions.values()
            for text in names
            if text.startswith(family + "_") and text.removeprefix(family + "_").replace(".", "").isdigit()
        ]
        return max(wanted, default=None)


class Symbols(msgspec.Struct, frozen=True, kw_only=True):
    """The dynamic symbols: what the library offers, what it must find elsewhere, and what it can do without.

    `unversioned` are those of the undefined that ask for no particular version: not glibc's, not libstdc++'s.
    """

    defined: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()
    unversioned: frozenset[str] = frozenset()


class ElfSection(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    number: int
    address: int
    offset: int
    size: int


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    kind: int
    flags: int
    offset: int
    address: int
    size: int

    @property
    def loaded(self) -> bool:
        return self.kind == _LOAD


def segments(source: Bytes) -> list[Segment]:
    return _ElfImage(source).segments


def read(source: Bytes) -> Elf:
    """What the file says of itself, from a few kilobytes of it."""
    image = _ElfImage(source)
    entries = image.dynamic
    return Elf(
        name=source.name,
        machine=image.machine,
        bits=image.bits,
        kind=image.kind,
        needed=image.needed(),
        soname=next((image.text(value) for tag, value in entries if tag == _SONAME), None),
        rpath=_paths(image, _RPATH),
        runpath=_paths(image, _RUNPATH),
        versions=image.versions(),
        isa=image.isa(),
    )


def of(path: Path) -> Elf:
    """Of a file on the disk."""
    with File(path) as source:
        return read(source)


def sections(source: Bytes) -> list[tuple[str, int, int]]:
    """Name, offset and size of every section that has bytes in the file; empty where they were stripped."""
    return [(section.name, section.offset, section.size) for section in _ElfImage(source).sections()]


def units(source: Bytes) -> dict[int, str]:
    """Which source file brought the GPU code at an offset, where the file still has its full symbol table.

    That table lists the local names of each object behind the name of its source; nvcc marks every container of GPU
    code by one (`fatbinData`). Only in files at hand: inside a zip the table would have to be kept while inflating.
    """
    image = _ElfImage(source)
    table = {one.name: one for one in image.sections()}
    place, symbols, strings = table.get(".nv_fatbin"), table.get(".symtab"), table.get(".strtab")
    if place is None or symbols is None or strings is None or image.bits != 64:
        return {}
    if symbols.size > _LARGEST_TABLE or strings.size > _LARGEST_TABLE:
        raise broken(source, "its symbol table is larger than any real one")
    names = exactly(source, strings.offset, strings.size, "the symbol names")
    data = exactly(source, symbols.offset, symbols.size - symbols.size % 24, "the symbol table")
    found: dict[int, str] = {}
    unit = ""
    source.budget.spend(len(data) // 24 // _SYMBOLS_PER_STEP)
    source.budget.keep(len(data))
    for name, info, _, index, value, _ in struct.iter_unpack(image.order + "IBBHQQ", data):
        if info & 15 == _FILE:
            unit = _source_name(_terminated(source, names, name, _LONGEST_NAME) or "")
        elif index == place.number and info >> 4 == 0 and unit:
            found.setdefault(value - place.address + place.offset, unit)
    return found


def symbols(source: Bytes) -> Symbols:
    """All dynamic symbols, by their mangled names."""
    return _ElfImage(source).symbols()


def regions(head: bytes, size: int) -> list[tuple[int, int]]:
    """The ranges that `read` and `symbols` will ask for, judged by the first bytes of the file.

    The symbol and string tables lie in the first segment, or, after patchelf, in a small one at the end.
    """
    try:
        image = _ElfImage(Buffer(head), size=size)
        segments = image.segments
    except Exception:
        return [(0, len(head))]
    at, width, count = image.section_table
    wanted = [(0, len(head)), (at - (64 << 10), at + width * count)]
    for number, segment in enumerate(s for s in segments if s.kind == _LOAD):
        if number == 0:
            wanted.append((segment.offset, segment.offset + min(segment.size, _HEAD)))
        elif not segment.flags & 1 and segment.size <= _SMALL:
            wanted.append((segment.offset, segment.offset + segment.size))
    wanted += [(s.offset, s.offset + s.size) for s in segments if s.kind in (_DYNAMIC, _PROPERTY) and s.size <= _SMALL]
    return wanted


class _ElfImage:
    def __init__(self, source: Bytes, size: int | None = None) -> None:
        self.source = source
        ident = exactly(source, 0, 64 if source.size >= 64 else 52, "the ELF header")
        if ident[:4] != MAGIC or ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise broken(source, "it is not an ELF file")
        self.bits = 64 if ident[4] == 2 else 32
        if self.bits == 64 and len(ident) < 64:
            raise broken(source, "it ends in the middle of the ELF header")
        self.order = "<" if ident[5] == 1 else ">"
        layout = "16xHHIQQQIHHHHHH" if self.bits == 64 else "16xHHIIIIIHHHHHH"  # e_type … e_shstrndx
        fields = struct.unpack_from(self.order + layout, ident)
        self.kind = _KINDS.get(fields[0], "other")
        self.machine = _MACHINES.get(fields[1], f"machine-{fields[1]}")
        self._programs = (fields[4], fields[8], fields[9])
        # Offset, size of a row, rows. The names lie before the table in all files that linkers write.
        self.section_table = (fields[5], fields[10], fields[11])
        self._names = fields[12]
        self.size = size or source.size

    @cached_property
    def segments(self) -> list[Segment]:
        at, width, count = self._programs
        layout = self.order + ("IIQQQQQQ" if self.bits == 64 else "IIIIIIII")
        if not count:
            return []
        if count > _MOST_SEGMENTS:
            raise broken(self.source, f"it has {count} program headers, more than any loader takes")
        if width != struct.calcsize(layout):
            raise broken(self.source, "its program headers have an unknown size")
        data = exactly(self.source, at, width * count, "the program headers")
        found = []
        for fields in struct.iter_unpack(layout, data):
            if self.bits == 64:
                kind, flags, offset, address, _, size = fields[:6]
            else:
                kind, offset, address, _, size, _, flags = fields[:7]
            found.append(Segment(kind=kind, flags=flags, offset=offset, address=address, size=size))
        return found

    @cached_property
    def dynamic(self) -> list[tuple[int, int]]:
        segment = next((s for s in self.segments if s.kind == _DYNAMIC), None)
        # A separate file of debug symbols keeps the headers and no contents.
        if segment is None or not segment.size:
            return []
        if segment.size > 1 << 20:
            raise broken(self.source, "its dynamic section is larger than any real one")
        layout = self.order + ("QQ" if self.bits == 64 else "II")
        data = exactly(self.source, segment.offset, segment.size, "the dynamic section")
        entries = []
        for tag, value in struct.iter_unpack(layout, data[: len(data) - len(data) % struct.calcsize(layout)]):
            if tag == 0:
                break
            entries.append((tag, value))
        return entries

    @cached_property
    def _values(self) -> dict[int, int]:
        return dict(reversed(self.dynamic))

    def value(self, tag: int) -> int | None:
        """The first entry with that tag."""
        return self._values.get(tag)

    @cached_property
    def _strings(self) -> tuple[int, int]:
        table = self.value(_STRTAB)
        return (0, 0) if table is None else (self.offset(table, "the string table"), self.value(_STRSZ) or 0)

    def offset(self, address: int, what: str) -> int:
        """Where in the file the loader would find this address."""
        for segment in self.segments:
            if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
                return segment.offset + address - segment.address
        raise broken(self.source, f"{what} would lie outside every segment")

    def text(self, index: int) -> str:
        """A string of the dynamic string table, read alone: the table may have 50 MB."""
        begin, size = self._strings
        if index >= size:
            raise broken(self.source, "a name lies outside its string table")
        data = self.source.read(begin + index, min(_LONGEST_NAME, size - index)).partition(b"\0")[0]
        self.source.budget.keep(_STRING_OBJECT + len(data))
        return data.decode("utf-8", "replace")

    def needed(self) -> tuple[str, ...]:
        """The libraries it links, each once: whoever follows them does so for every one."""
        places = dict.fromkeys(value for tag, value in self.dynamic if tag == _NEEDED)
        if len(places) > _MOST_NEEDED:
            raise broken(self.source, f"it links {len(places)} libraries, more than any real one")
        return tuple(dict.fromkeys(self.text(place) for place in places))

    def versions(self) -> dict[str, tuple[str, ...]]:
        address, count = self.value(_VERNEED), self.value(_VERNEEDNUM) or 0
        if address is None or not 0 < count <= 4096:
            return {}
        at = self.offset(address, "the version needs")
        found: dict[str, tuple[str, ...]] = {}
        for _ in range(count):
            data = exactly(self.source, at, 16, "the version needs")
            _, names, file, first, following = struct.unpack(self.order + "HHIII", data)
            found[self.text(file)] = tuple(sorted(self._version_names(at + first, names)))
            if not following:
                break
            at += following
        return found

    def _version_names(self, at: int, count: int) -> Iterator[str]:
        for _ in range(min(count, 4096)):
            data = exactly(self.source, at, 16, "a version name")
            _, _, _, name, following = struct.unpack(self.order + "IHHII", data)
            yield self.text(name)
            if not following:
                return
            at += following

    def isa(self) -> str | None:
        """The level in the note `GNU_PROPERTY_X86_ISA_1_NEEDED`, which compilers write only when told to."""
        segment = next((s for s in self.segments if s.kind == _PROPERTY), None)
        if segment is None or not 16 <= segment.size <= 4096 or not self.machine.startswith("x86"):
            return None
        data = self.source.read(segment.offset, segment.size)[16:]
        at = 0
        while at + 12 <= len(data):
            kind, size, bits = struct.unpack_from(self.order + "III", data, at)
            if kind == 0xC0008002:
                return next((level for bit, level in ((8, "v4"), (4, "v3"), (2, "v2"), (1, "v1")) if bits & bit), None)
            at += 8 + (size + 7) // 8 * 8
        return None

    def sections(self) -> list[ElfSection]:
        at, width, count = self.section_table
        layout = self.order + ("IIQQQQIIQQ" if self.bits == 64 else "10I")
        if not at or not count or width != struct.calcsize(layout) or at + width * count > self.size:
            return []
        self.source.budget.spend(count // _SYMBOLS_PER_STEP)
        rows = list(struct.iter_unpack(layout, exactly(self.source, at, width * count, "the section headers")))
        names_at, names_size = rows[self._names][4:6] if self._names < count else (0, 0)
        names = self.source.read(names_at, min(names_size, 1 << 20))
        found = []
        for number, row in enumerate(rows):
            if row[1] not in (0, _NOBITS):
                text = _terminated(self.source, names, row[0], _LONGEST_NAME) or ""
                found.append(ElfSection(name=text, number=number, address=row[3], offset=row[4], size=row[5]))
        return found

    def symbols(self) -> Symbols:
        address, strings, length = self.value(_SYMTAB), self.value(_STRTAB), self.value(_STRSZ) or 0
        if address is None or strings is None:
            return Symbols()
        layout = self.order + ("IBBHQQ" if self.bits == 64 else "IIIBBH")
        count = self._symbol_count()
        total = count * struct.calcsize(layout)
        if total > _LARGEST_TABLE or length > _LARGEST_TABLE:
            raise broken(self.source, "its symbol table is larger than any real one")
        table = exactly(self.source, self.offset(address, "the symbol table"), total, "the symbol table")
        names = exactly(self.source, self.offset(strings, "the string table"), length, "the string table")
        versions = self._symbol_versions(count)
        self.source.budget.spend(count // _SYMBOLS_PER_STEP)
        defined, undefined, weak, unversioned = set(), set(), set(), set()
        for fields, version in zip(struct.iter_unpack(layout, table), versions, strict=True):
            name, info, section = (
                (fields[0], fields[1], fields[3]) if self.bits == 64 else (fields[0], fields[3], fields[5])
            )
            text = _terminated(self.source, names, name, _LONGEST_SYMBOL) if name else None
            if text is None:
                continue
            if section:
                defined.add(text)
            elif info >> 4 == 2:
                weak.add(text)
            else:
                undefined.add(text)
                if version & 0x7FFF < 2:
                    unversioned.add(text)
        return Symbols(
            defined=frozenset(defined),
            undefined=frozenset(undefined),
            weak=frozenset(weak),
            unversioned=frozenset(unversioned),
        )

    def _symbol_versions(self, count: int) -> array[int]:
        address = self.value(_VERSYM)
        if address is None:
            return array("H", bytes(2 * count))
        data = exactly(self.source, self.offset(address, "the symbol versions"), 2 * count, "the symbol versions")
        return numbers("H", data, self.order)

    def _symbol_count(self) -> int:
        """The dynamic section does not say; the hash tables do."""
        address = self.value(_HASH)
        if address is not None:
            data = exactly(self.source, self.offset(address, "the hash table"), 8, "the hash table")
            count: int = struct.unpack(self.order + "II", data)[1]
            return count
        address = self.value(_GNU_HASH)
        if address is None:
            return 0
        at = self.offset(address, "the hash table")
        buckets, first, bloom, _ = struct.unpack(self.order + "IIII", exactly(self.source, at, 16, "the hash table"))
        at += 16 + bloom * self.bits // 8
        if buckets > 1 << 24:
            raise broken(self.source, "its hash table is larger than any real one")
        data = exactly(self.source, at, buckets * 4, "the hash table")
        self.source.budget.spend(buckets // 64)
        last: int = max(numbers("I", data, self.order), default=0)
        if last < first:
            return int(first)
        at += buckets * 4 + (last - first) * 4
        # Each chain ends with an odd value.
        while True:
            data = self.source.read(at, 4096)
            for (value,) in struct.iter_unpack(self.order + "I", data[: len(data) & ~3]):
                last += 1
                if value & 1:
                    return last
            if len(data) < 4096:
                raise broken(self.source, "its hash table does not end")
            at += 4096


def _source_name(text: str) -> str:
    """nvcc compiles `AsyncMM.cu` by way of `tmpxft_00005d55_00000000-6_AsyncMM.compute_90a.cudafe1.cpp`."""
    match = re.match(r"(?:tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_)?(.+?)(?:\.compute_\d+[af]?)?\.cudafe1\.cpp$", text)
    return f"{match[1]}.cu" if match else text


def _terminated(source: Bytes, names: bytes, at: int, longest: int) -> str | None:
    """The name at a place of a table; None where it does not end. Names may overlap, so each is counted."""
    end = names.find(b"\0", at, at + longest) if at < len(names) else -1
    if end < 0:
        source.budget.spend(longest // _LETTERS_PER_STEP)
        return None
    source.budget.spend((end - at) // _LETTERS_PER_STEP)
    source.budget.keep(_STRING_OBJECT + end - at)
    return names[at:end].decode("utf-8", "replace")


def _paths(image: _ElfImage, tag: int) -> tuple[str, ...]:
    value = image.value(tag)
    return () if value is None else tuple(path for path in image.text(value).split(":") if path)
