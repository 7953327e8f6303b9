"""Zips that two readers understand differently, written byte by byte: each is one thing and its disguise."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

import msgspec

LOCAL = struct.Struct("<4s5H3L2H")
ENTRY = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")


class Part(msgspec.Struct, kw_only=True):
    """A member. What is not None replaces what the header of that side would say."""

    name: str
    data: bytes = b"x = 1\n"
    flags: int = 0
    local_flags: int | None = None
    local_name: bytes | None = None
    local_size: int | None = None
    local_crc: int | None = None
    local_method: int | None = None
    crc: int | None = None
    method: int = 0
    extra: bytes = b""
    local_extra: bytes = b""
    descriptor: bytes = b""
    before: bytes = b""
    raw_name: bytes | None = None

    @property
    def spelled(self) -> bytes:
        return self.raw_name if self.raw_name is not None else self.name.encode()

    @property
    def coded(self) -> int:
        return self.flags | (0 if self.spelled.isascii() or self.raw_name is not None else 0x800)


def members(parts: Sequence[Part], base: int = 0) -> tuple[bytes, list[int]]:
    out = bytearray()
    places = []
    for part in parts:
        out += part.before
        places.append(base + len(out))
        name = part.spelled if part.local_name is None else part.local_name
        crc = zlib.crc32(part.data) if part.crc is None else part.crc
        size = len(part.data) if part.local_size is None else part.local_size
        out += LOCAL.pack(
            b"PK\3\4", 20, part.coded if part.local_flags is None else part.local_flags,
            part.method if part.local_method is None else part.local_method, 0, 33,
            crc if part.local_crc is None else part.local_crc, size, size, len(name), len(part.local_extra),
        )  # fmt: skip
        out += name + part.local_extra + part.data + part.descriptor
    return bytes(out), places


def directory(parts: Sequence[Part], places: Sequence[int]) -> bytes:
    out = bytearray()
    for part, place in zip(parts, places, strict=True):
        name = part.spelled
        crc = zlib.crc32(part.data) if part.crc is None else part.crc
        out += ENTRY.pack(
            b"PK\1\2", 0x0314, 20, part.coded, part.method, 0, 33, crc, len(part.data), len(part.data), len(name),
            len(part.extra), 0, 0, 0, 0o100644 << 16, place,
        )  # fmt: skip
        out += name + part.extra
    return bytes(out)


def end(count: int, size: int, begin: int, comment: bytes = b"") -> bytes:
    return END.pack(b"PK\5\6", 0, 0, count, count, size, begin, len(comment)) + comment


def made(parts: Sequence[Part], *, prefix: bytes = b"", gap: bytes = b"", trailing: bytes = b"") -> bytes:
    body, places = members(parts, len(prefix))
    listed = directory(parts, places)
    begin = len(prefix) + len(body) + len(gap)
    return prefix + body + gap + listed + end(len(parts), len(listed), begin) + trailing


def wheel(files: Mapping[str, bytes], **more: bytes) -> bytes:
    return made([Part(name=name, data=data) for name, data in files.items()], **more)


def two_directories(judged: Sequence[Part], installed: Sequence[Part]) -> bytes:
    """The end record points at one directory; right before it lies another, which `zipfile` takes."""
    # zipfile adds the difference between where the directory must end and where it says it does to every offset.
    first, first_at = members(judged)
    one = directory(judged, first_at)
    begin = len(first)
    shift = len(one) + len(members(installed)[0])
    second, second_at = members(installed, begin + len(one) - shift)
    two = directory(installed, second_at)
    if len(two) != len(one):
        raise ValueError("both directories must be of the same length")
    return first + one + second + two + end(len(judged), len(one), begin)


def stray_locator(judged: Sequence[Part], installed: Sequence[Part]) -> bytes:
    """A zip64 end record that the ordinary one does not ask for: readers that see the locator follow it."""
    first, first_at = members(judged)
    second, second_at = members(installed, len(first))
    hidden = directory(installed, second_at)
    shown = directory(judged, first_at)
    at_shown = len(first) + len(second)
    at_hidden = at_shown + len(shown)
    at_wide = at_hidden + len(hidden)
    wide = END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, len(installed), len(installed), len(hidden), at_hidden)
    locator = LOCATOR.pack(b"PK\6\7", 0, at_wide, 1)
    return first + second + shown + hidden + wide + locator + end(len(judged), len(shown), at_shown)
