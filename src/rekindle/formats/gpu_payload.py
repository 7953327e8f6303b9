"""The code itself of one entry of a fatbin: a cubin or PTX text, decompressed where nvcc compressed it.

nvcc up to 12.7 packs with LZ4 (flag 0x2000): one bare block, its length at +16 of the entry's header and the length of
what comes out at +56. Newer ones use zstd (0x8000), which Python's standard library reads from 3.14 on.
"""

from __future__ import annotations

import importlib
import struct

from rekindle.core.errors import BadInput
from rekindle.formats.access import Bytes, broken, exactly
from rekindle.formats.fatbin import GpuEntry

_LZ4, _ZSTD = 0x2000, 0x8000
_HEADER = struct.Struct("<4xIQI4x32xQ")
# The largest PTX of a torch library has 60 MB.
_LARGEST = 1 << 30


def payload(source: Bytes, entry: GpuEntry) -> bytes:
    """What the driver would be given, as nvcc made it."""
    head = exactly(source, entry.offset, _HEADER.size, "the header of GPU code")
    header, stored, packed, unpacked = _HEADER.unpack(head)
    if header + stored > entry.size:
        raise broken(source, "GPU code would lie outside its container")
    data = exactly(source, entry.offset + header, stored, "GPU code")
    if not entry.compressed:
        return data
    if unpacked > _LARGEST or packed > len(data):
        raise broken(source, "compressed GPU code has an impossible size")
    if entry.flags & _LZ4:
        return lz4_block(data[:packed], unpacked, source.name)
    return _zstd(data[:packed], unpacked, source.name)


def lz4_block(data: bytes, size: int, name: str = "the data") -> bytes:
    """One LZ4 block: literals and copies of what came before, up to `size` bytes."""
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            token = data[at]
            at, literals = _length(data, at + 1, token >> 4)
            if literals > end - at or len(out) + literals > size:
                raise IndexError
            out += data[at : at + literals]
            at += literals
            if at >= end:
                break
            back = data[at] | data[at + 1] << 8
            at, copied = _length(data, at + 2, token & 15)
            copied += 4
            if not 0 < back <= len(out) or len(out) + copied > size:
                raise IndexError
            _copy(out, back, copied)
    except IndexError:
        raise BadInput(f"`{name}` is broken: GPU code that does not decompress", hint="build the file again") from None
    if len(out) != size:
        raise BadInput(f"`{name}` is broken: GPU code is cut short", hint="build the file again")
    return bytes(out)


def _length(data: bytes, at: int, length: int) -> tuple[int, int]:
    """A length of 15 goes on in the following bytes, as long as they are 255."""
    if length == 15:
        while True:
            more = data[at]
            at += 1
            length += more
            if more != 255:
                break
    return at, length


def _copy(out: bytearray, back: int, length: int) -> None:
    begin = len(out) - back
    if length <= back:
        out += out[begin : begin + length]
        return
    # The copy reads what it has just written: a pattern that repeats.
    pattern = bytes(out[begin:])
    out += (pattern * (length // back + 1))[:length]


def _zstd(data: bytes, size: int, name: str) -> bytes:
    try:
        zstd = importlib.import_module("compression.zstd")
    except ImportError:
        raise BadInput(
            f"the GPU code of `{name}` is compressed with zstd, which this Python cannot read",
            hint="run Rekindle with Python 3.14 or newer",
        ) from None
    out: bytes = zstd.ZstdDecompressor().decompress(data, max_length=size + 1)
    if len(out) != size:
        raise BadInput(f"`{name}` is broken: GPU code is cut short", hint="build the file again")
    return out
