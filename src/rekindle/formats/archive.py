"""A wheel's zip, read member by member: its directory, raw data, and inflated bytes in pieces or by range.

The directory is read here rather than by `zipfile` because a wheel comes from anywhere: its size is checked before it
is believed, names that leave the folder, come twice or are links are refused, members that share their bytes are
refused, and `repair` needs to know where each member's raw data lies. Inflating is `isal`'s (twice as fast as zlib).
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Callable, Iterator

import msgspec

from rekindle.core.errors import BadInput
from rekindle.formats.access import CHUNK, Bytes, broken, exactly

_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")

_MOST_MEMBERS = 200_000
_LARGEST_DIRECTORY = 64 << 20
_LARGEST_MEMBER = 16 << 30
# Deflate reaches 1,032:1 on nothing but zeros; the most a real library was seen to reach is 12:1.
_BOMB_RATIO = 200
_BOMB_SIZE = 64 << 20


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the archive. `offset` is that of its local header."""

    name: str
    size: int
    packed: int
    crc: int
    method: int
    flags: int
    offset: int
    mode: int = 0

    @property
    def stored(self) -> bool:
        return self.method == 0


class Archive:
    """A zip over anything that ranges can be read from: a file, or an address on the web."""

    def __init__(self, source: Bytes) -> None:
        self.source = source
        members = list(_directory(source))
        _check(source, members)
        self.members = {member.name: member for member in members if not member.name.endswith("/")}

    @property
    def name(self) -> str:
        return self.source.name

    def member(self, name: str) -> Member:
        try:
            return self.members[name]
        except KeyError:
            raise broken(self.source, f"it has no member `{name}`") from None

    def data_offset(self, member: Member) -> int:
        """Where the member's raw data begins: behind its local header, which must agree with the directory."""
        fields = _LOCAL.unpack(exactly(self.source, member.offset, _LOCAL.size, f"the header of `{member.name}`"))
        begin: int = member.offset + _LOCAL.size + fields[9] + fields[10]
        if fields[0] != b"PK\3\4" or fields[3] != member.method or begin + member.packed > self.source.size:
            raise broken(self.source, f"the header of `{member.name}` does not agree with the directory")
        name = exactly(self.source, member.offset + _LOCAL.size, fields[9], f"the name of `{member.name}`")
        if _name(name, fields[2]) != member.name:
            raise broken(self.source, f"`{member.name}` has another name in its own header")
        return begin

    def raw(self, member: Member) -> Iterator[bytes]:
        """The member as it is stored, compressed or not."""
        begin = self.data_offset(member)
        left = member.packed
        while left:
            data = self.source.read(begin, min(CHUNK, left))
            if not data:
                raise broken(self.source, f"it ends in the middle of `{member.name}`")
            yield data
            begin += len(data)
            left -= len(data)

    def chunks(self, member: Member) -> Iterator[bytes]:
        """The member's contents in pieces of at most 4 MiB; an error if size or checksum are not as stated."""
        from isal import isal_zlib

        if member.flags & 1:
            message = f"`{member.name}` in `{self.name}` is encrypted"
            raise BadInput(message, hint="wheels are not encrypted; download it again")
        if member.size > _BOMB_SIZE and member.packed * _BOMB_RATIO < member.size:
            message = f"`{member.name}` in `{self.name}` is a zip bomb: {member.size} bytes from {member.packed}"
            raise BadInput(message, hint="do not install this file")
        done = crc = 0
        for data in self._unpacked(member):
            done += len(data)
            if done > member.size:
                raise broken(self.source, f"`{member.name}` is longer than the directory says")
            crc = isal_zlib.crc32(data, crc)
            yield data
        if done != member.size or crc != member.crc:
            raise broken(self.source, f"`{member.name}` does not have the stated size or checksum")

    def _unpacked(self, member: Member) -> Iterator[bytes]:
        from isal import isal_zlib

        if member.stored:
            yield from self.raw(member)
            return
        if member.method != 8:
            message = f"`{member.name}` in `{self.name}` is compressed by method {member.method}, not deflate"
            raise BadInput(message, hint="installers only read stored and deflated members")
        inflate = isal_zlib.decompressobj(-15)
        try:
            for block in self.raw(member):
                data = inflate.decompress(block, 4 * CHUNK)
                while True:
                    if data:
                        yield data
                    if inflate.eof or not (data or inflate.unconsumed_tail):
                        break
                    data = inflate.decompress(inflate.unconsumed_tail, 4 * CHUNK)
            if not inflate.eof:
                raise broken(self.source, f"the compressed data of `{member.name}` stops early")
        except isal_zlib.IsalError as error:  # type: ignore[misc]  # a class, though its stub says an instance
            raise broken(self.source, f"`{member.name}` cannot be inflated ({error})") from error

    def read(self, name: str, *, limit: int = 64 << 20) -> bytes:
        """A whole member that is expected to be small."""
        member = self.member(name)
        if member.size > limit:
            message = f"`{name}` in `{self.name}` is {member.size} bytes, more than {limit}"
            raise BadInput(message, hint="this is not the kind of member expected there")
        return b"".join(self.chunks(member))

    def open(self, name: str) -> Inflated:
        return Inflated(self, self.member(name))


class Inflated:
    """A member that ranges can be read from. Deflate has no way back, so `walk` keeps the parts that will be asked for.

    A range that was not kept is had by inflating again, a few times and no more.
    """

    _MOST_PASSES = 6

    def __init__(self, archive: Archive, member: Member) -> None:
        self.name = member.name
        self.size = member.size
        self._archive = archive
        self._member = member
        self._kept: list[tuple[int, bytes]] = []
        self._passes = 0
        self._begin: int | None = None

    def read(self, offset: int, size: int) -> bytes:
        size = max(min(size, self.size - offset), 0)
        if not size or offset < 0:
            return b""
        if self._member.stored:
            if self._begin is None:
                self._begin = self._archive.data_offset(self._member)
            return self._archive.source.read(self._begin + offset, size)
        for begin, data in self._kept:
            if begin <= offset and offset + size <= begin + len(data):
                return data[offset - begin : offset - begin + size]
        self.walk(lambda _: [(offset, offset + size)])
        return next((data[offset - begin :][:size] for begin, data in reversed(self._kept) if begin == offset), b"")

    def walk(self, keep: Callable[[bytes], list[tuple[int, int]]], look: Callable[[bytes], None] | None = None) -> None:
        """Inflate once. Every piece is shown to `look`; what `keep` asks for on seeing the first one is kept."""
        self._passes += 1
        if self._passes > self._MOST_PASSES:
            raise broken(self._archive.source, f"`{self.name}` points all over itself")
        ranges: list[tuple[int, int]] = []
        parts: list[list[bytes]] = []
        at = 0
        for data in self._archive.chunks(self._member):
            if at == 0:
                ranges = _merged(keep(data), self.size)
                parts = [[] for _ in ranges]
            end = at + len(data)
            for index, (begin, stop) in enumerate(ranges):
                if begin < end and stop > at:
                    parts[index].append(data[max(begin - at, 0) : stop - at])
            if look:
                look(data)
            elif ranges and end >= ranges[-1][1]:
                break
            at = end
        self._kept += [(begin, b"".join(pieces)) for (begin, _), pieces in zip(ranges, parts, strict=True)]


def _merged(ranges: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    whole: list[tuple[int, int]] = []
    for begin, end in sorted((max(b, 0), min(e, size)) for b, e in ranges):
        if begin >= end:
            continue
        if whole and begin <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((begin, end))
    return whole


def _directory(source: Bytes) -> Iterator[Member]:
    begin, size, count = _end(source)
    if count > _MOST_MEMBERS or size > _LARGEST_DIRECTORY:
        message = f"`{source.name}` says that it has {count} members"
        raise BadInput(message, hint="no real wheel has more than a few ten thousand")
    data = exactly(source, begin, size, "the zip directory")
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > size:
            raise broken(source, "the zip directory ends early")
        fields = _ENTRY.unpack_from(data, at)
        lengths = fields[10], fields[11], fields[12]
        following = at + _ENTRY.size + sum(lengths)
        if fields[0] != b"PK\1\2" or following > size:
            raise broken(source, "the zip directory is damaged")
        name = data[at + _ENTRY.size : at + _ENTRY.size + lengths[0]]
        extra = data[at + _ENTRY.size + lengths[0] : following - lengths[2]]
        yield _member(source, fields, name, extra)
        at = following


def _member(source: Bytes, fields: tuple[int, ...], name: bytes, extra: bytes) -> Member:
    crc, packed, size, offset = fields[7], fields[8], fields[9], fields[16]
    wide = _wide(extra)
    values = []
    for value in (size, packed, offset):
        if value == 0xFFFFFFFF:
            if len(wide) < 8:
                raise broken(source, "a zip64 entry lacks its sizes")
            value, wide = struct.unpack_from("<Q", wide)[0], wide[8:]
        values.append(value)
    return Member(
        name=_name(name, fields[3]),
        size=values[0],
        packed=values[1],
        crc=crc,
        method=fields[4],
        flags=fields[3],
        offset=values[2],
        mode=fields[15] >> 16,
    )


def _wide(extra: bytes) -> bytes:
    """The zip64 part of an extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            return extra[at + 4 : at + 4 + size]
        at += 4 + size
    return b""


def _name(name: bytes, flags: int) -> str:
    return name.decode("utf-8" if flags & 0x800 else "cp437", "replace")


def _end(source: Bytes) -> tuple[int, int, int]:
    """Where the directory begins, its size, and how many members it says it has."""
    tail_at = max(source.size - _END.size - 65535, 0)
    tail = source.read(tail_at, source.size - tail_at)
    at = tail.rfind(b"PK\5\6")
    if at < 0 or at + _END.size > len(tail):
        message = f"`{source.name}` is not a wheel: it has no zip directory"
        raise BadInput(message, hint="the download may be incomplete; download it again")
    fields = _END.unpack_from(tail, at)
    count, size, begin = fields[4], fields[5], fields[6]
    place = tail_at + at
    if 0xFFFF in (count, fields[3]) or 0xFFFFFFFF in (size, begin):
        locator = source.read(place - _LOCATOR.size, _LOCATOR.size) if place >= _LOCATOR.size else b""
        if locator[:4] == b"PK\6\7":
            place = _LOCATOR.unpack(locator)[2]
            wide = _END64.unpack(exactly(source, place, _END64.size, "the zip64 directory end"))
            if wide[0] != b"PK\6\6":
                raise broken(source, "its zip64 directory end is not where it should be")
            count, size, begin = wide[7], wide[8], wide[9]
    if begin + size > place:
        raise broken(source, "its zip directory would lie outside the file")
    return begin, size, count


def _check(source: Bytes, members: list[Member]) -> None:
    """Refuse what no honest wheel has, before anything is read or written in its name."""
    names: set[str] = set()
    end = 0
    last: Member | None = None
    for member in members:
        problem = _unsafe(member)
        if problem:
            raise BadInput(f"`{source.name}` has a member {problem}", hint="do not install this file")
        if member.name in names:
            raise BadInput(f"`{source.name}` has `{_short(member)}` twice", hint="do not install this file")
        names.add(member.name)
    for member in sorted(members, key=lambda m: m.offset):
        if member.offset < end:
            first = _short(last) if last else "the beginning"
            message = f"in `{source.name}` the members `{first}` and `{_short(member)}` share the same bytes"
            raise BadInput(message, hint="do not install this file")
        end = member.offset + _LOCAL.size + member.packed
        last = member
        if end > source.size or member.size > _LARGEST_MEMBER:
            raise broken(source, f"`{_short(member)}` would lie outside the file or is larger than any library")


def _unsafe(member: Member) -> str | None:
    name = member.name
    if (
        not name
        or "\0" in name
        or "\\" in name
        or (not name.isprintable() and any(ord(letter) < 32 for letter in name))
    ):
        return f"with an unusable name, `{_short(member)}`"
    if name.startswith("/") or name[1:2] == ":" or ".." in name.split("/"):
        return f"that would leave its folder, `{_short(member)}`"
    if stat.S_ISLNK(member.mode):
        return f"that is a link, `{_short(member)}`"
    return None


def _short(member: Member) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in member.name[:100])
