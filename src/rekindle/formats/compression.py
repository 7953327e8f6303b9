"""Deflate, zstd and LZ4: one way to unpack each.

Deflate by ISA-L, which is several times as fast, where it is installed; else by Python's zlib. Both read the same data;
what they write differs in size by a few percent and is read by everybody. zstd by Python's own module (3.14 and newer)
or the same one for older Pythons, `backports.zstd`. Of LZ4 there are only single blocks, inside GPU code. No more comes
out than is asked for.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import IO, Any, cast

from rekindle.core.errors import BadInput

# Archives packed with `--long=31` are read, too: two gigabytes of window.
_WINDOW = 31
_SMALLEST_WINDOW = 10


@lru_cache(maxsize=1)
def engine() -> Any:
    """The module to use: `decompressobj`, `compressobj`, `crc32`, `error`. Imported when first asked for."""
    try:
        from isal import isal_zlib
    except ModuleNotFoundError:
        import zlib

        return zlib
    return isal_zlib


@lru_cache(maxsize=1)
def _own() -> Any:
    """Python's module for zstd."""
    try:
        return importlib.import_module("compression.zstd")
    except ModuleNotFoundError:
        return importlib.import_module("backports.zstd")


def zstd_error() -> type[Exception]:
    """What a damaged stream of zstd raises."""
    return cast("type[Exception]", _own().ZstdError)


def zstd_opened(stream: Any, *, largest: int = 1 << _WINDOW) -> IO[bytes]:
    """The unpacked bytes of a stream that has `read`, one frame after the other. No more than `largest` bytes are set
    aside to unpack them."""
    return cast("IO[bytes]", _own().ZstdFile(stream, options=_window(largest)))


def zstd_frame(data: bytes, most: int, *, largest: int) -> bytes:
    """Up to `most` bytes of the frame that `data` begins with. A file object for each of thousands takes three times
    as long."""
    return cast("bytes", _own().ZstdDecompressor(options=_window(largest)).decompress(data, max_length=most))


def _window(largest: int) -> dict[Any, int]:
    bits = min(max((largest - 1).bit_length(), _SMALLEST_WINDOW), _WINDOW)
    return {_own().DecompressionParameter.window_log_max: bits}


def lz4_block(data: bytes, size: int, name: str = "the data", *, whole: bool = True) -> bytes:
    """One LZ4 block: literals and copies of what came before, up to `size` bytes. If it is not the `whole` block, what
    `data` has of them."""
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end and (whole or len(out) < size):
            token = data[at]
            literals, at = token >> 4, at + 1
            if literals == 15:
                at, literals = _length(data, at)
            if whole and (literals > end - at or len(out) + literals > size):
                raise IndexError
            out += data[at : at + literals]
            at += literals
            if at >= end:
                break
            back = data[at] | data[at + 1] << 8
            copied, at = (token & 15) + 4, at + 2
            if copied == 19:
                at, copied = _length(data, at, copied)
            if not 0 < back <= len(out) or (whole and len(out) + copied > size):
                raise IndexError
            _copy(out, back, copied if whole else min(copied, size))
    except IndexError:
        if whole:
            message = f"`{name}` is broken: GPU code that does not decompress"
            raise BadInput(message, hint="build the file again") from None
    return bytes(out[:size])


def _length(data: bytes, at: int, length: int = 15) -> tuple[int, int]:
    """A length of 15 goes on in the following bytes, as long as they are 255."""
    while True:
        more = data[at]
        at += 1
        length += more
        if more != 255:
            return at, length


def _copy(out: bytearray, back: int, length: int) -> None:
    begin = len(out) - back
    if length <= back:
        out += out[begin : begin + length]
        return
    # The copy reads what it has just written: a pattern that repeats.
    pattern = bytes(out[begin:])
    out += (pattern * (length // back + 1))[:length]
