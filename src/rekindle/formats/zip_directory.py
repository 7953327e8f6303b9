"""The directory of a zip, in the one reading that every installer shares, or a refusal.

Readers of zips differ: one believes the end record's offset, another takes what lies right before it; one looks for
zip64 only where it is announced, another always; one goes by the directory, another by the headers before each member.
A file on which they would disagree can be judged as one thing and installed as another. So the layout must leave no
choice: members from the first byte on, one behind the other, then the directory, then its end, then nothing; and the
two headers of each member must say the same.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator, Sequence

import msgspec

from rekindle.core import untrusted
from rekindle.core.errors import BadInput
from rekindle.core.untrusted import printable
from rekindle.formats.access import Bytes, broken, exactly
from rekindle.formats.budget import Unpacking

# The records of a zip as they lie in the file, for the reader and the writer alike.
LOCAL = struct.Struct("<4s5H3L2H")
"""Before a member: signature, version, flags, method, time, date, CRC, packed, size, lengths of name and extra."""
ENTRY = struct.Struct("<4s6H3L5H2L")
"""In the directory: signature, made by, version, flags, method, time, date, CRC, packed, size, lengths of name, extra
and comment, disk, internal and external attributes, offset."""
END = struct.Struct("<4s4H2LH")
"""At the end: signature, disk, disk of the directory, entries here, entries, size and offset, length of the comment."""
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")

LOCAL_MARK, ENTRY_MARK, END_MARK = b"PK\3\4", b"PK\1\2", b"PK\5\6"
END64_MARK, LOCATOR_MARK, DESCRIPTOR_MARK = b"PK\6\6", b"PK\6\7", b"PK\7\x08"

WIDE = 0xFFFFFFFF
"""Stands in a 32-bit field whose value is in the zip64 extra field."""
MANY = 0xFFFF

STORED, DEFLATED = 0, 8

ENCRYPTED, DESCRIPTOR, STRONG, UTF8, MASKED = 0x1, 0x8, 0x40, 0x800, 0x2000
"""Flags. With DESCRIPTOR the sizes follow the data instead of preceding it."""
PLAIN_FLAGS = DESCRIPTOR | UTF8 | 0x6
"""What an honest wheel may set; 0x6 says how hard the packer tried."""

ZIP64_EXTRA, UNICODE_PATH_EXTRA = 0x0001, 0x7075
END64_REST = END64.size - 12
"""What a zip64 end record says of its own size: without the signature and the number itself."""

_LARGEST_DIRECTORY = 64 << 20
_LARGEST_MEMBER = 16 << 30
# Room for the extra fields that real packers write, so that a header is one read.
_NEAR = 64


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the archive. `offset` is that of its local header; `digest` is RECORD's spelling of the contents'
    hash, where it was taken."""

    name: str
    size: int
    packed: int
    crc: int
    method: int
    flags: int = 0
    offset: int = 0
    mode: int = 0
    digest: str | None = None

    @property
    def stored(self) -> bool:
        return self.method == STORED


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """All members, folders included, in the order of their data. `begin` is where the directory itself lies."""

    members: tuple[Member, ...]
    begin: int


def read(source: Bytes) -> Directory:
    begin, size, count = _end(source)
    if size > _LARGEST_DIRECTORY:
        raise broken(source, f"its directory of {count} members is larger than any real one")
    members = sorted(_entries(source, begin, size, count), key=lambda member: member.offset)
    _check(source, members, begin)
    return Directory(members=tuple(members), begin=begin)


def check_headers(source: Bytes, directory: Directory) -> dict[int, int]:
    """Every header before a member against the directory, and nothing between one member and the next.

    Tells where each member's data begins, by the place of its header.
    """
    begins = {}
    following = [member.offset for member in directory.members[1:]] + [directory.begin]
    for member, end in zip(directory.members, following, strict=True):
        begin = data_offset(source, member)
        begins[member.offset] = begin
        data_end = begin + member.packed
        if data_end == end:
            continue
        if not member.flags & DESCRIPTOR or not _descriptor(source, member, data_end, end - data_end):
            raise _refused(source, f"unlisted data behind `{printable(member.name)}`")
    return begins


def data_offset(source: Bytes, member: Member) -> int:
    """Where the member's raw data begins: behind its own header, which must say what the directory says."""
    shown = printable(member.name)
    near = source.read(member.offset, LOCAL.size + len(member.name) + _NEAR)
    if len(near) < LOCAL.size or near[:4] != LOCAL_MARK:
        raise broken(source, f"there is no header for `{shown}` where the directory says")
    _, _, flags, method, _, _, crc, packed, size, name_size, extra_size = LOCAL.unpack_from(near)
    begin: int = member.offset + LOCAL.size
    rest = near[LOCAL.size : LOCAL.size + name_size + extra_size]
    if len(rest) < name_size + extra_size:
        rest = exactly(source, begin, name_size + extra_size, f"the header of `{shown}`")
    if _name(source, rest[:name_size], flags) != member.name:
        raise broken(source, f"`{shown}` has another name in its own header")
    extra = _extra(source, rest[name_size:], shown)
    size, packed = _wide_values(source, (size, packed), extra)
    stated = (flags, method, crc, packed, size)
    if stated != (member.flags, member.method, member.crc, member.packed, member.size) and not (
        flags == member.flags and flags & DESCRIPTOR and method == member.method and not (crc or packed or size)
    ):
        raise broken(source, f"the header of `{shown}` does not agree with the directory")
    begin += name_size + extra_size
    if begin + member.packed > source.size:
        raise broken(source, f"`{shown}` would lie outside the file")
    return begin


def _end(source: Bytes) -> tuple[int, int, int]:
    """Where the directory begins, its size, and how many members it has."""
    place = source.size - END.size
    tail = source.read(place, END.size) if place >= 0 else b""
    if tail[:4] != END_MARK:
        raise _without_end(source)
    _, disk, first_disk, here, count, size, begin, comment = END.unpack(tail)
    if disk or first_disk or here != count or comment:
        raise _refused(source, "an end record that is not that of a single, whole zip")
    locator = source.read(place - LOCATOR.size, LOCATOR.size) if place >= LOCATOR.size else b""
    wide = count == MANY or WIDE in (size, begin)
    if wide != (locator[:4] == LOCATOR_MARK):
        raise _refused(
            source, "a zip64 record that its end record does not announce" if not wide else "no zip64 record"
        )
    if wide:
        count, size, begin, place = _wide_end(source, place, locator, (count, size, begin))
    if begin + size != place:
        raise _refused(source, "data between its directory and the end, or another directory")
    return begin, size, count


def _wide_end(source: Bytes, place: int, locator: bytes, short: tuple[int, int, int]) -> tuple[int, int, int, int]:
    _, disk, at, disks = LOCATOR.unpack(locator)
    data = exactly(source, at, END64.size, "the zip64 directory end")
    mark, rest, _, _, number, first, here, count, size, begin = END64.unpack(data)
    if mark != END64_MARK or rest != END64_REST or at + END64.size + LOCATOR.size != place:
        raise broken(source, "its zip64 directory end is not where it should be")
    told = zip(short, (MANY, WIDE, WIDE), (count, size, begin), strict=True)
    if disk or disks != 1 or number or first or here != count or any(s not in (m, v) for s, m, v in told):
        raise _refused(source, "two end records that do not agree")
    return count, size, begin, at


def _without_end(source: Bytes) -> BadInput:
    """Trailing data, or a zip that was cut off: which of the two is told by looking for the end record further up."""
    near = max(source.size - END.size - 65535, 0)
    if END_MARK in source.read(near, source.size - near):
        return _refused(source, "data behind its end")
    message = f"`{source.name}` is not a wheel: it has no zip directory"
    return BadInput(message, hint="the download may be incomplete; download it again")


def _entries(source: Bytes, begin: int, size: int, count: int) -> Iterator[Member]:
    data = exactly(source, begin, size, "the zip directory")
    at = 0
    for _ in range(count):
        source.budget.spend()
        if at + ENTRY.size > size:
            raise broken(source, "the zip directory ends early")
        fields = ENTRY.unpack_from(data, at)
        lengths = fields[10:13]
        following = at + ENTRY.size + sum(lengths)
        if fields[0] != ENTRY_MARK or following > size:
            raise broken(source, "the zip directory is damaged")
        name_end = at + ENTRY.size + lengths[0]
        yield _member(source, fields, data[name_end - lengths[0] : name_end], data[name_end : name_end + lengths[1]])
        at = following
    if at != size:
        raise _refused(source, "a directory with more in it than it counts")


def _member(source: Bytes, fields: tuple[int, ...], raw: bytes, extra_data: bytes) -> Member:
    flags, method, crc = fields[3], fields[4], fields[7]
    name = _name(source, raw, flags)
    shown = printable(name)
    if flags & (ENCRYPTED | STRONG | MASKED):
        message = f"`{shown}` in `{source.name}` is encrypted"
        raise BadInput(message, hint="installers cannot read encrypted members; download the file again")
    if flags & ~PLAIN_FLAGS or fields[13]:
        raise _refused(source, f"a member with unknown flags, `{shown}`")
    if method not in (STORED, DEFLATED):
        message = f"`{shown}` in `{source.name}` is compressed by method {method}, not deflate"
        raise BadInput(message, hint="installers only read stored and deflated members")
    size, packed, offset = _wide_values(source, (fields[9], fields[8], fields[16]), _extra(source, extra_data, shown))
    return Member(
        name=name,
        size=size,
        packed=packed,
        crc=crc,
        method=method,
        flags=flags,
        offset=offset,
        mode=fields[15] >> 16,
    )


def _extra(source: Bytes, extra: bytes, shown: str) -> bytes:
    """The zip64 part of an extra field. A second name in it is refused: some readers prefer it."""
    at = 0
    wide: bytes | None = None
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == UNICODE_PATH_EXTRA or (kind == ZIP64_EXTRA and wide is not None):
            raise _refused(source, f"a member with two names or two sizes, `{shown}`")
        if kind == ZIP64_EXTRA:
            wide = extra[at + 4 : at + 4 + size]
        at += 4 + size
    return wide or b""


def _wide_values(source: Bytes, values: Sequence[int], wide: bytes) -> list[int]:
    """The values, those that stand in the zip64 field taken from there, in the order the format gives them."""
    whole = []
    for value in values:
        if value == WIDE:
            if len(wide) < 8:
                raise broken(source, "a zip64 entry lacks its sizes")
            value, wide = struct.unpack_from("<Q", wide)[0], wide[8:]
        whole.append(value)
    return whole


def _descriptor(source: Bytes, member: Member, at: int, size: int) -> bool:
    """Is this the record that follows the data where sizes were not known before, and does it say the same?"""
    if size not in (12, 16, 20, 24):
        return False
    data = exactly(source, at, size, f"the sizes of `{printable(member.name)}`")
    if size in (16, 24):
        if data[:4] != DESCRIPTOR_MARK:
            return False
        data = data[4:]
    stated = struct.unpack("<3L" if len(data) == 12 else "<LQQ", data)
    return stated == (member.crc, member.packed, member.size)


def _name(source: Bytes, name: bytes, flags: int) -> str:
    """Beyond ASCII only where it is marked as UTF-8: what other bytes mean depends on who reads them."""
    try:
        return name.decode("utf-8" if flags & UTF8 else "ascii")
    except UnicodeDecodeError as error:
        shown = printable(name.decode("ascii", "replace"))
        raise _refused(source, f"a name that is not UTF-8 or not marked as such, `{shown}`") from error


def _check(source: Bytes, members: Sequence[Member], begin: int) -> None:
    """Refuse what no honest wheel has, before anything is read or written in its name."""
    names: set[str] = set()
    end = 0
    unpacking = Unpacking(source.name, source.size)
    last: Member | None = None
    for member in members:
        shown = printable(member.name)
        problem = untrusted.problem(member.name)
        if problem:
            raise _refused(source, problem)
        if stat.S_ISLNK(member.mode):
            raise _refused(source, f"a member that is a link, `{shown}`")
        if member.name in names:
            raise _refused(source, f"`{shown}` twice")
        names.add(member.name)
        if last is None and member.offset:
            raise _refused(source, f"{member.offset} bytes before its first member")
        if member.offset < end:
            raise _refused(source, f"members that overlap, `{printable(last.name if last else '')}` and `{shown}`")
        end = member.offset + LOCAL.size + member.packed
        last = member
        unpacking.member(member.size)
        if end > begin or member.size > _LARGEST_MEMBER or (member.name.endswith("/") and member.size):
            raise broken(source, f"`{shown}` would lie outside the file or is larger than any library")
        if member.stored and member.size != member.packed:
            raise broken(source, f"`{shown}` is stored and has two sizes")
    if last is None and begin:
        raise _refused(source, f"{begin} bytes before an empty directory")
    both = untrusted.conflict(names)
    if both:
        raise _refused(source, f"`{printable(both[0])}` as a file and as the folder of `{printable(both[1])}`")


def _refused(source: Bytes, what: str) -> BadInput:
    return BadInput(f"`{source.name}` has {what}", hint="do not install this file: installers may read it differently")
