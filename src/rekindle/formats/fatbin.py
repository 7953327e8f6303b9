"""GPU code inside a file: every fatbin container and its entries, read from their headers and beginnings.

A container begins with the magic 0xBA55ED50 and is followed by entries, each with a header of its own and a payload
(a cubin, PTX text, LTO code), compressed or not; the headers never are. So it is enough to look for the magic, hop from
header to header and see that code begins there: most of the payloads, nearly all of a torch library, is not even read.

Layout, established on real files and with nvcc 11.8 and 13.0 (`tests/real/test_inspect_gpu_code.py`):

    container  u32 magic, u16 version (1), u16 header size (16), u64 size of all entries
    entry      u16 kind (1 PTX, 2 cubin, 8 LTO code), u16 version (0x101), u32 header size, u64 payload size,
               +16 u32 compressed size, +24 u16 u16 minor and major version (of PTX: its ISA), +28 u32 architecture,
               +40 u64 flags (0x2000 LZ4, 0x8000 zstd, 0x100000 an `a` target, 0x200000 an `f` target)
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum

import msgspec

from rekindle.core.errors import BadInput
from rekindle.core.version import Version
from rekindle.formats.access import Buffer, Bytes, File
from rekindle.formats.budget import Budget
from rekindle.formats.gpu_payload import LZ4, ZSTD, Content, content, wanted, work
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.model.card import Capability, Target

MAGIC = struct.pack("<I", 0xBA55ED50)

_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQI4xHHI8xQ")
_NEEDED = _CONTAINER.size + _ENTRY.size
_EXACT = 0x100000
_FAMILY = 0x200000
# Real files: 571 containers and 3,000 entries in the largest torch library, 24,000 containers in cuFFT.
_MOST = 200_000
# A container without kernels is never larger: an empty cubin takes up to 1,600 bytes, for each of a dozen targets.
_STUB = 64 << 10
# What one container or entry takes in memory.
_OBJECTS = 400


class Kind(IntEnum):
    PTX = 1
    CUBIN = 2
    LTO = 8


class CodePlace(str, Enum):
    """REGISTERED code is what the program launches. RELOCATABLE code is input to the device linker, left over when the
    linked result is registered beside it. EMBEDDED code lies among other data, and a library (cuFFT, a JIT) loads it.
    """

    REGISTERED = "registered"
    RELOCATABLE = "relocatable"
    EMBEDDED = "embedded"


class GpuEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of code. `kind` is a number because newer toolkits may bring kinds that this reader does not name."""

    kind: int
    target: Target
    compressed: bool
    flags: int
    offset: int
    size: int
    ptx_isa: Version | None = None
    content: Content = Content.KERNELS

    @property
    def runnable(self) -> bool:
        return self.kind in (Kind.PTX, Kind.CUBIN) and self.content is not Content.NOT_CODE


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What one translation unit or one library function brings: the same kernels for several targets.

    `whole` is false when the entries do not fill the container as its header says. `section` is the one it lies in,
    `unit` the source file it comes from, where the file still says so.
    """

    offset: int
    size: int
    entries: tuple[GpuEntry, ...]
    whole: bool = True
    section: str | None = None
    unit: str | None = None

    @property
    def place(self) -> CodePlace:
        """By section: `.nv_fatbin` and `__nv_relfatbin`, on Windows cut to `.nv_fatb` and `__nv_rel`."""
        if self.section is None or self.section.startswith(".nv_fatb"):
            return CodePlace.REGISTERED
        return CodePlace.RELOCATABLE if self.section.startswith("__nv_rel") else CodePlace.EMBEDDED

    @property
    def code(self) -> tuple[GpuEntry, ...]:
        """The entries that can run. None of a stub, which the device linker leaves where there are no kernels."""
        found = tuple(entry for entry in self.entries if entry.runnable)
        return found if any(entry.content is Content.KERNELS for entry in found) else ()

    @property
    def broken(self) -> tuple[GpuEntry, ...]:
        """The entries that say they can run and hold something else than code."""
        return tuple(entry for entry in self.entries if entry.content is Content.NOT_CODE)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the code that can run, one per entry, in order."""
        return tuple(sorted(entry.target for entry in self.code))


def scan(source: Bytes | bytes | bytearray | memoryview) -> list[Container]:
    """Every container of a file (ELF, PE, static archive, object, raw fatbin), in the order they lie there."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        source = Buffer(source)
    scanner = Scanner(source.size, source.name, source.budget)
    step = _NEAR
    while scanner.wanted < source.size:
        # Inside a container the next header is one hop away: read little. Searching, read more and more.
        step = max(_NEAR, scanner.needs) if scanner.inside else min(step * 2, _FAR)
        if step == _FAR and isinstance(source, File):
            scanner.wanted = source.past_hole(scanner.wanted)
        at = scanner.wanted
        data = source.read(at, step)
        if not data:
            break
        scanner.feed(at, data)
        if scanner.wanted < at + len(data) and len(data) < step:
            break
    return scanner.finish()


def gpu_code(file: str, containers: Iterable[Container]) -> GpuCode:
    """What the containers of one file amount to: the code that can run, per container, and what is set aside."""
    launched, aside = sorted_out(container for container in containers if container.code or container.broken)
    sizes: dict[Target, int] = {}
    for entry in (entry for container in launched for entry in container.code):
        sizes[entry.target] = sizes.get(entry.target, 0) + entry.size
    return GpuCode.of(file, map(_code, launched), aside=map(_code, aside), sizes=sizes)


def sorted_out(containers: Iterable[Container]) -> tuple[list[Container], list[Container]]:
    """The containers that a program launches its kernels from, and the others.

    As cuobjdump does: the registered ones, or, in a file that has none (an object before device linking, a library that
    CUDA 13 linked from a single one), the relocatable ones.
    """
    every = list(containers)
    place = CodePlace.REGISTERED if any(c.place is CodePlace.REGISTERED for c in every) else CodePlace.RELOCATABLE
    return [c for c in every if c.place is place], [c for c in every if c.place is not place]


def _code(container: Container) -> list[tuple[Target, Version | None]]:
    return [(entry.target, entry.ptx_isa) for entry in container.code]


def in_sections(containers: Iterable[Container], sections: Sequence[tuple[str, int, int]]) -> list[Container]:
    """The same containers, each with the name of the section that it lies in."""
    ordered = sorted((begin, begin + size, name) for name, begin, size in sections if size)
    begins = [begin for begin, _, _ in ordered]
    placed = []
    for container in containers:
        index = bisect_right(begins, container.offset) - 1
        inside = index >= 0 and container.offset < ordered[index][1]
        placed.append(msgspec.structs.replace(container, section=ordered[index][2] if inside else ""))
    return placed


_NEAR = 4096
_FAR = 1 << 20


class Scanner:
    """Is fed pieces of the file; says in `wanted` from where it needs the next one. Skipped payloads are never seen."""

    def __init__(self, size: int, name: str = "the data", budget: Budget | None = None) -> None:
        self.size = size
        self.name = name
        self.budget = budget or Budget(name, size)
        self.wanted = 0
        self.needs = _ENTRY.size
        """How many bytes from `wanted` on the next entry takes."""
        self.inside = False
        self._found: list[Container] = []
        self._entries: list[GpuEntry] = []
        self._begin = 0
        self._end = 0
        self._small = False

    def feed(self, offset: int, data: bytes) -> None:
        """Look at `data`, which lies at `offset` and includes the byte at `wanted` (or lies wholly before it)."""
        end = offset + len(data)
        while self.wanted < end:
            if not (self._entry(offset, data) if self.inside else self._search(offset, data)):
                return
            self.budget.spend(2)

    def finish(self) -> list[Container]:
        if self.inside:
            self._close(whole=self._end - self.wanted < _ENTRY.size)
        return self._found

    def _search(self, offset: int, data: bytes) -> bool:
        """Go to the next container. False when more bytes are needed."""
        begin = self.wanted - offset
        # Most pieces have none, and that `rfind` says in half the time: from behind, it skips more at each step.
        at = data.find(MAGIC, begin) if data.rfind(MAGIC, begin) >= 0 else -1
        if at < 0:
            self.wanted = max(self.wanted, offset + len(data) - len(MAGIC) + 1)
            return False
        self.wanted = offset + at
        if len(data) - at < _NEEDED:
            # The rest of the header is in the next piece, unless the file ends here.
            if self.wanted + _NEEDED <= self.size:
                return False
            self.wanted += 1
            return True
        _, version, header, size = _CONTAINER.unpack_from(data, at)
        begin = self.wanted + header
        # The magic is also a constant in the code of the CUDA runtime: only a header that makes sense counts, and
        # only one whose first entry does too, because behind it there is no way back in a stream.
        if version != 1 or header != _CONTAINER.size or size < _ENTRY.size or begin + size > self.size:
            self.wanted += 1
            return True
        if _plausible(data, at + header, size) is None:
            self.wanted += 1
            return True
        self.inside = True
        self._begin, self._end = self.wanted, begin + size
        self._small = size <= _STUB
        self.wanted = begin
        return True

    def _entry(self, offset: int, data: bytes) -> bool:
        """Go to the next entry, or out of the container. False when more bytes are needed."""
        room = self._end - self.wanted
        if room < _ENTRY.size:
            # Nothing but padding can follow.
            end = self._end
            self._close(whole=True)
            self.wanted = end
            return True
        at = self.wanted - offset
        if len(data) - at < _ENTRY.size:
            return False
        fields = _plausible(data, at, room)
        if fields is None:
            self._close(whole=False)
            return True
        entry = _entry(self.wanted, fields)
        if entry.runnable:
            header, stored = fields[2], fields[3]
            self.needs = header + wanted(entry.flags, stored)
            if len(data) - at < self.needs:
                return False
            whole = self._small and self.needs == header + stored
            self.budget.spend(work(entry.flags, self.needs, header=not (whole or entry.target.ptx)))
            held = content(memoryview(data)[at : at + self.needs], entry.target, entry.flags, small=self._small)
            if held is Content.KERNELS:
                # It is no stub: of the others only the beginning matters.
                self._small = False
            else:
                entry = msgspec.structs.replace(entry, content=held)
        self._entries.append(entry)
        self.budget.keep(_OBJECTS)
        self.wanted += entry.size
        self.needs = _ENTRY.size
        return True

    def _close(self, *, whole: bool) -> None:
        if self._entries:
            self.budget.keep(_OBJECTS)
            self._found.append(
                Container(offset=self._begin, size=self._end - self._begin, entries=tuple(self._entries), whole=whole)
            )
        self._entries = []
        self.inside = False
        if len(self._found) > _MOST:
            message = f"`{self.name}` has more than {_MOST} containers of GPU code"
            raise BadInput(message, hint="this is not a file that a CUDA compiler wrote")


class Stream:
    """A scanner for bytes that come in order: keeps the few that reach into the next piece."""

    def __init__(self, size: int, name: str = "the data", budget: Budget | None = None) -> None:
        self._scanner = Scanner(size, name, budget)
        self._position = 0
        self._tail = b""

    def push(self, chunk: bytes) -> None:
        data = self._tail + chunk if self._tail else chunk
        end = self._position + len(data)
        if self._scanner.wanted < end:
            self._scanner.feed(self._position, data)
        wanted = self._scanner.wanted
        self._tail = data[wanted - self._position :] if wanted < end else b""
        self._position = end - len(self._tail)

    def finish(self) -> list[Container]:
        return self._scanner.finish()


def _plausible(data: bytes, at: int, room: int) -> tuple[int, ...] | None:
    """The fields of an entry header, or None if this is none."""
    fields: tuple[int, ...] = _ENTRY.unpack_from(data, at)
    kind, version, header, size, packed, minor, major, arch, _ = fields
    if not 1 <= kind <= 0x100 or version >> 8 != 1 or not _ENTRY.size <= header <= 4096 or header % 8:
        return None
    if header + size > room or packed > size or not 10 <= arch <= 999 or major > 99 or minor > 99:
        return None
    return fields


def _entry(offset: int, fields: tuple[int, ...]) -> GpuEntry:
    kind, _, header, size, _, minor, major, arch, flags = fields
    suffix = "a" if flags & _EXACT else "f" if flags & _FAMILY else ""
    ptx = kind == Kind.PTX
    return GpuEntry(
        kind=kind,
        target=Target(Capability(arch // 10, arch % 10), ptx=ptx, suffix=suffix),
        compressed=bool(flags & (LZ4 | ZSTD)),
        flags=flags,
        offset=offset,
        size=header + size,
        ptx_isa=Version(f"{major}.{minor}") if ptx else None,
    )
