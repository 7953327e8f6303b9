"""Bytes to read from: a file on disk, a buffer, a member of a wheel. The format readers ask for ranges and no more.

Every reader treats its input as hostile: a range that lies outside the file is an error with the file's name in it,
never a crash; nothing reads more than it asked for; and every read is counted against the budget of the file.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol

from rekindle.core import files
from rekindle.core.errors import BadInput, NotFound
from rekindle.formats.budget import Budget

CHUNK = 1 << 20


class Bytes(Protocol):
    """Something with a name and a size from which ranges can be read, in any order."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def budget(self) -> Budget: ...

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer at the end, none beyond it."""


class Buffer:
    """Bytes that are already in memory."""

    def __init__(self, data: bytes | bytearray | memoryview, name: str = "the data") -> None:
        self.name = name
        self.size = len(data)
        self.budget = Budget(name, self.size)
        self._data = memoryview(data)

    def read(self, offset: int, size: int) -> bytes:
        data = bytes(self._data[offset : offset + size])
        self.budget.read(len(data))
        return data


class Slice:
    """A range of something else, read as if it were a file: an object inside a static archive."""

    def __init__(self, whole: Bytes, offset: int, size: int, name: str) -> None:
        self.name = name
        self.size = max(min(size, whole.size - offset), 0)
        self.budget = whole.budget
        self._whole = whole
        self._offset = offset

    def read(self, offset: int, size: int) -> bytes:
        if offset < 0 or offset >= self.size:
            return b""
        return self._whole.read(self._offset + offset, min(size, self.size - offset))


class File:
    """A file on disk. Ranges are read, not mapped: a mapping of a whole torch library would count as memory in use."""

    def __init__(self, path: Path, name: str | None = None, *, hops: bool = False) -> None:
        """`hops`: little will be read, here and there; the system is told not to read ahead."""
        self.name = name or path.name
        self._stream: BinaryIO = open_file(path)
        try:
            self.size = self._stream.seek(0, 2)
        except OSError as error:
            self._stream.close()
            raise broken(self, f"it cannot be read: {files.describe_error(error)}") from error
        self.budget = Budget(self.name, self.size)
        if hops and sys.platform != "win32" and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, offset: int, size: int) -> bytes:
        if offset < 0 or offset >= self.size:
            return b""
        self.budget.read(min(size, self.size - offset))
        try:
            self._stream.seek(offset)
            return self._stream.read(size)
        except OSError as error:
            raise broken(self, f"it cannot be read: {files.describe_error(error)}") from error

    def past_hole(self, offset: int) -> int:
        """Where the next bytes lie that were ever written: terabytes of nothing take no room on a disk."""
        if sys.platform != "win32" and hasattr(os, "SEEK_DATA"):
            try:
                return os.lseek(self.fileno(), offset, os.SEEK_DATA)
            except OSError as error:
                return self.size if error.errno == errno.ENXIO else offset
        return offset

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def open_file(path: Path) -> BinaryIO:
    """The file a user named, opened for reading, or an error that says what is wrong with it."""
    try:
        files.ordinary(path)
        # Unbuffered: the readers ask for exactly what they need, and a read-ahead would be thrown away at each hop.
        return path.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise NotFound.path(path) from error
    except (OSError, ValueError) as error:
        message = f"cannot read `{str(path)[:200]}`: {getattr(error, 'strerror', None) or error}"
        raise NotFound(message, hint="check the path and the permissions of the file") from error


def exactly(source: Bytes, offset: int, size: int, what: str) -> bytes:
    """The range, whole; an error that names `what` was to be there if the file ends before."""
    if offset < 0 or size < 0 or offset + size > source.size:
        raise broken(source, f"{what} would lie outside the file (offset {offset:#x}, {size} bytes)")
    data = source.read(offset, size)
    if len(data) != size:
        raise broken(source, f"it ends in the middle of {what}")
    return data


def unpack(layout: str, source: Bytes, offset: int, what: str) -> tuple[Any, ...]:
    return struct.unpack(layout, exactly(source, offset, struct.calcsize(layout), what))


def numbers(kind: str, data: bytes, order: str = "<") -> array[int]:
    """A table of numbers, at its own size in memory: as Python objects it would be ten times as large."""
    found = array(kind, data)
    if (order == "<") != (sys.byteorder == "little"):
        found.byteswap()
    return found


def blocks(source: Bytes, offset: int, end: int) -> Iterator[bytes]:
    """The range from `offset` to `end`, a piece at a time."""
    while offset < end:
        data = source.read(offset, min(CHUNK, end - offset))
        if not data:
            return
        yield data
        offset += len(data)


def broken(source: Bytes | File, problem: str) -> BadInput:
    return BadInput(f"`{source.name}` is broken: {problem}", hint="download or build the file again")
