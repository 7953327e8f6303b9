"""Tar archives of strangers, read by `tarfile` within limits of our own.

A header that stands before a member (a long name, a list of keys) is read as a whole into memory, and the header after
it within that: a row of them ends at Python's recursion limit, and one of many keys is copied for every member.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

DAMAGE = (tarfile.TarError, EOFError, ValueError, UnicodeError)
"""What `tarfile` raises over a file that is no tar, or a damaged one."""
_LONGEST_HEADER, _LONGEST_CHAIN = 64 * 1024, 8
_SPARE_HEADERS, _HEADERS_SHARE = 1024**2, 4
"""A header before a member holds what does not fit into its own, such as a long name: some hundred bytes."""
_HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, b"X")


_READ: Callable[[tarfile.TarInfo, tarfile.TarFile], tarfile.TarInfo] = vars(tarfile.TarInfo)["_proc_member"]
"""Reads one header, and those that follow it; the library has no public place to stand before it."""


class BoundedMember(tarfile.TarInfo):
    def _proc_member(self, tar: BoundedTar) -> tarfile.TarInfo:
        if self.type not in _HEADERS:
            return _READ(self, tar)
        tar.header_bytes -= 512 + self.size
        tar.chain += 1
        if self.size > _LONGEST_HEADER or tar.header_bytes < 0 or tar.chain > _LONGEST_CHAIN:
            raise tarfile.ReadError(f"its headers take more than any real one: {self.size} bytes, {tar.chain} in a row")
        try:
            return _READ(self, tar)
        finally:
            tar.chain -= 1


class BoundedTar(tarfile.TarFile):
    """`header_bytes` is what headers before members may still take; `chain` how many stand in a row just now."""

    tarinfo = BoundedMember
    header_bytes = _SPARE_HEADERS
    chain = 0


@contextmanager
def opened(path: Path, *, compressed: bool) -> Iterator[BoundedTar]:
    with BoundedTar.open(path, "r:*" if compressed else "r:") as tar:
        tar.header_bytes += path.stat().st_size // _HEADERS_SHARE
        yield tar


@contextmanager
def streamed(stream: IO[bytes], size: int) -> Iterator[BoundedTar]:
    """A tar that can be read once and in order, out of a package of `size` bytes."""
    with BoundedTar.open(fileobj=stream, mode="r|") as tar:
        tar.header_bytes += size // _HEADERS_SHARE
        yield tar
