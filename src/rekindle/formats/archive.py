"""A wheel's zip, read member by member: its directory, raw data, and inflated bytes in pieces or by range.

The directory is read by `zip_directory` rather than by `zipfile`, because a wheel comes from anywhere and `repair`
needs to know where each member's raw data lies. Inflating is `isal`'s (twice as fast as zlib).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator

from rekindle.core.errors import BadInput
from rekindle.formats import zip_directory
from rekindle.formats.access import CHUNK, Bytes, broken
from rekindle.formats.compression import engine
from rekindle.formats.zip_directory import Member

__all__ = ["Archive", "Inflated", "Member"]

# Inflating that much is a step's worth of work.
_INFLATED = 2048


class Archive:
    """A zip over anything that ranges can be read from: a file, or an address on the web.

    Without `headers` only the directory is checked at first, and each member's own header when the member is read: on
    the web every header would be a request.
    """

    def __init__(self, source: Bytes, *, headers: bool = True) -> None:
        self.source = source
        directory = zip_directory.read(source)
        # Where each member's data begins: a header that was checked once is not read again for the copy.
        self._begins = zip_directory.check_headers(source, directory) if headers else {}
        self.members = {member.name: member for member in directory.members if not member.name.endswith("/")}
        self.digests: dict[str, bytes] | None = None
        """Where it is wanted, the SHA-256 of each member that was read to its end: no second pass has to find it."""

    @property
    def name(self) -> str:
        return self.source.name

    def member(self, name: str) -> Member:
        try:
            return self.members[name]
        except KeyError:
            raise broken(self.source, f"it has no member `{name}`") from None

    def data_offset(self, member: Member) -> int:
        """Where the member's raw data begins."""
        begin = self._begins.get(member.offset)
        return zip_directory.data_offset(self.source, member) if begin is None else begin

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
        checksum = engine().crc32
        sha = hashlib.sha256() if self.digests is not None else None
        done = crc = 0
        for data in self._unpacked(member):
            done += len(data)
            self.source.budget.spend(1 + len(data) // _INFLATED)
            if done > member.size:
                raise broken(self.source, f"`{member.name}` is longer than the directory says")
            crc = checksum(data, crc)
            if sha is not None:
                sha.update(data)
            yield data
        if done != member.size or crc != member.crc:
            raise broken(self.source, f"`{member.name}` does not have the stated size or checksum")
        if self.digests is not None and sha is not None:
            self.digests[member.name] = sha.digest()

    def _unpacked(self, member: Member) -> Iterator[bytes]:
        if member.stored:
            yield from self.raw(member)
            return
        inflate = engine().decompressobj(-15)
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
        except engine().error as error:
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
        self.budget = archive.source.budget
        # Sorted by offset, because many small ranges must not make every read slow.
        self._begins: list[int] = []
        self._kept: list[bytes] = []
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
        self.budget.read(size)
        known = self._known(offset, size)
        if known is None:
            if size > self.budget.held:
                raise broken(self._archive.source, f"a table of `{self.name}` is larger than any real one")
            self.walk(lambda _: [(offset, offset + size)])
            known = self._known(offset, size)
        return known or b""

    def _known(self, offset: int, size: int) -> bytes | None:
        index = bisect_right(self._begins, offset) - 1
        if index < 0 or offset + size > self._begins[index] + len(self._kept[index]):
            return None
        begin = offset - self._begins[index]
        return self._kept[index][begin : begin + size]

    def walk(self, keep: Callable[[bytes], list[tuple[int, int]]], look: Callable[[bytes], None] | None = None) -> None:
        """Inflate once. Every piece is shown to `look`; what `keep` asks for on seeing the first one is kept."""
        self._passes += 1
        if self._passes > self._MOST_PASSES:
            raise broken(self._archive.source, f"`{self.name}` has too many backward references")
        ranges: list[tuple[int, int]] = []
        parts: list[list[bytes]] = []
        at = first = 0
        for data in self._archive.chunks(self._member):
            if at == 0:
                ranges = _merged(keep(data), self.size, self.budget.held)
                parts = [[] for _ in ranges]
            end = at + len(data)
            while first < len(ranges) and ranges[first][1] <= at:
                first += 1
            for index in range(first, len(ranges)):
                begin, stop = ranges[index]
                if begin >= end:
                    break
                parts[index].append(data[max(begin - at, 0) : stop - at])
            if look:
                look(data)
            elif ranges and end >= ranges[-1][1]:
                break
            at = end
        self._keep([(begin, b"".join(pieces)) for (begin, _), pieces in zip(ranges, parts, strict=True)])

    def _keep(self, more: list[tuple[int, bytes]]) -> None:
        """Beside what was kept before, as long as both together are not too much."""
        if sum(map(len, self._kept)) + sum(len(data) for _, data in more) <= self.budget.held:
            more = sorted([*zip(self._begins, self._kept, strict=True), *more], key=lambda part: part[0])
        self._begins = [begin for begin, _ in more]
        self._kept = [data for _, data in more]


def _merged(ranges: list[tuple[int, int]], size: int, most: int) -> list[tuple[int, int]]:
    """The ranges in order and without overlaps, at most so many bytes of them."""
    whole: list[tuple[int, int]] = []
    for begin, end in sorted((max(b, 0), min(e, size)) for b, e in ranges):
        if begin >= end:
            continue
        if whole and begin <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((begin, end))
    kept = []
    for begin, end in whole:
        kept.append((begin, min(end, begin + most)))
        most -= kept[-1][1] - begin
        if most <= 0:
            break
    return kept
