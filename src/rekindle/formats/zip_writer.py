"""A zip written member by member: raw data that is copied as it is, and new data that is compressed here.

`zipfile` can only compress what it is given, so changing one file of an 800 MB wheel with it means inflating and
deflating all of it. Headers are the same whenever and wherever they are written: one time stamp for all (that of
SOURCE_DATE_EPOCH, else the first day a zip can name), no extra fields but zip64's where a size needs it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from rekindle.core.errors import UsageError
from rekindle.formats import zip_directory as layout
from rekindle.formats.compression import engine
from rekindle.formats.zip_directory import Member

# Level 2 of ISA-L packs a library as tightly as zlib's level 1, three times as fast.
_LEVEL = 2
_IN_MEMORY = 8 << 20


class Squeezed(msgspec.Struct, frozen=True, kw_only=True):
    """A new member and the temporary file that holds its compressed data."""

    member: Member
    stream: IO[bytes]


def squeeze(name: str, data: Iterable[bytes], *, mode: int = 0o644, folder: Path | None = None) -> Squeezed:
    """Compress new contents. `folder` is where the temporary file goes when it is large."""
    # Closed by `Writer.add`, or with the last reference to it.
    stream: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(folder) if folder else None)  # noqa: SIM115
    packer = engine().compressobj(_LEVEL, layout.DEFLATED, -15)
    digest = hashlib.sha256()
    crc = size = 0
    for block in data:
        crc = engine().crc32(block, crc)
        digest.update(block)
        size += len(block)
        stream.write(packer.compress(block))
    stream.write(packer.flush())
    member = Member(
        name=name,
        size=size,
        packed=stream.tell(),
        crc=crc,
        method=layout.DEFLATED,
        mode=0o100000 | mode,
        digest=spelled(digest.digest()),
    )
    return Squeezed(member=member, stream=stream)


class Writer:
    """Writes to an open file. `close` must be called for the directory to be written."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._date, self._time = timestamp()
        self._members: list[Member] = []

    def copy(self, member: Member, data: Iterable[bytes]) -> None:
        """A member whose data is already packed: written byte for byte."""
        self._begin(member)
        for block in data:
            self._stream.write(block)

    def copy_range(self, member: Member, source: int, offset: int) -> bool:
        """The same from a range of an open file, without a detour through this process; False where that cannot be."""
        if not hasattr(os, "copy_file_range"):
            return False
        place = self._stream.tell()
        self._begin(member)
        self._stream.flush()
        left = member.packed
        try:
            while left:
                done = os.copy_file_range(source, self._stream.fileno(), left, offset)
                if not done:
                    break
                left -= done
                offset += done
        except OSError:
            # An old kernel, or two file systems that do not know each other.
            pass
        if not left:
            self._stream.seek(0, os.SEEK_END)
            return True
        self._members.pop()
        self._stream.seek(place)
        self._stream.truncate()
        return False

    def add(self, squeezed: Squeezed) -> Member:
        """New contents."""
        with squeezed.stream as stream:
            stream.seek(0)
            self.copy(squeezed.member, pieces(stream))
        return squeezed.member

    def _begin(self, member: Member) -> None:
        member = msgspec.structs.replace(member, offset=self._stream.tell())
        self._stream.write(self._local(member))
        self._members.append(member)

    def close(self) -> None:
        begin = self._stream.tell()
        for member in self._members:
            self._stream.write(self._entry(member))
        end = self._stream.tell()
        size, count = end - begin, len(self._members)
        if begin >= layout.WIDE or size >= layout.WIDE or count >= layout.MANY:
            self._stream.write(
                layout.END64.pack(layout.END64_MARK, layout.END64_REST, 45, 45, 0, 0, count, count, size, begin)
            )
            self._stream.write(layout.LOCATOR.pack(layout.LOCATOR_MARK, 0, end, 1))
        short = min(count, layout.MANY)
        self._stream.write(
            layout.END.pack(layout.END_MARK, 0, 0, short, short, min(size, layout.WIDE), min(begin, layout.WIDE), 0)
        )

    def _local(self, member: Member) -> bytes:
        name, flags = _name(member.name)
        wide = max(member.size, member.packed) >= layout.WIDE
        extra = struct.pack("<HHQQ", layout.ZIP64_EXTRA, 16, member.size, member.packed) if wide else b""
        packed, size = (layout.WIDE, layout.WIDE) if wide else (member.packed, member.size)
        head = layout.LOCAL.pack(
            layout.LOCAL_MARK, 45 if wide else 20, flags, member.method, self._time, self._date, member.crc, packed,
            size, len(name), len(extra),
        )  # fmt: skip
        return head + name + extra

    def _entry(self, member: Member) -> bytes:
        name, flags = _name(member.name)
        large = [value for value in (member.size, member.packed, member.offset) if value >= layout.WIDE]
        extra = struct.pack(f"<HH{len(large)}Q", layout.ZIP64_EXTRA, 8 * len(large), *large) if large else b""
        needs = 45 if large else 20
        # 3: Unix, so that the mode in the upper half of the attributes is believed.
        head = layout.ENTRY.pack(
            layout.ENTRY_MARK, 3 << 8 | needs, needs, flags, member.method, self._time, self._date, member.crc,
            min(member.packed, layout.WIDE), min(member.size, layout.WIDE), len(name), len(extra), 0, 0, 0,
            (member.mode & 0xFFFF) << 16, min(member.offset, layout.WIDE),
        )  # fmt: skip
        return head + name + extra


def spelled(digest: bytes) -> str:
    """A SHA-256 as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def timestamp() -> tuple[int, int]:
    """The date and time of every header, in DOS form: SOURCE_DATE_EPOCH if it is set, else 1980-01-01."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if not text:
        return 1 << 5 | 1, 0
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        message = f"SOURCE_DATE_EPOCH is `{text[:40]}`, not a number of seconds"
        raise UsageError(message, hint="unset it, or set it to seconds since 1970-01-01")
    when = time.gmtime(min(max(int(text), 315_532_800), 4_354_819_198))
    return (
        (when.tm_year - 1980) << 9 | when.tm_mon << 5 | when.tm_mday,
        when.tm_hour << 11 | when.tm_min << 5 | when.tm_sec // 2,
    )


def pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while data := stream.read(1 << 20):
        yield data


def _name(name: str) -> tuple[bytes, int]:
    return (name.encode("ascii"), 0) if name.isascii() else (name.encode("utf-8"), layout.UTF8)
