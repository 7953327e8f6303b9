"""The code itself of one entry of a fatbin: a cubin or PTX text, decompressed where nvcc compressed it.

nvcc up to 12.7 packs with LZ4 (flag 0x2000): one bare block, its length at +16 of the entry's header and the length of
what comes out at +56. Newer ones can also use zstd (0x8000).
"""

from __future__ import annotations

import re
import struct
from enum import Enum
from typing import TYPE_CHECKING

from rekindle.core.errors import BadInput
from rekindle.core.pattern import late
from rekindle.formats.access import Bytes, broken, exactly
from rekindle.formats.compression import lz4_block, zstd_error, zstd_frame
from rekindle.model.card import Target

if TYPE_CHECKING:
    from rekindle.formats.fatbin import GpuEntry

LZ4, ZSTD = 0x2000, 0x8000
_HEADER = struct.Struct("<4xIQI4x32xQ")
# The largest PTX of a torch library has 60 MB.
_LARGEST = 1 << 30
# What is looked at to tell code from something else: enough for the header of a cubin, or the comments before PTX.
_BEGINNING = 4096 - _HEADER.size
# zstd gives nothing before a whole block, which has this size at most.
_BLOCK = (128 << 10) + 32
# Entries without kernels are small: real ones have 100 to 1,600 bytes in the file.
_SMALL = 64 << 10
_CUBIN = struct.Struct("<4sBxxxB9xH28xI")
_CUDA, _NEW_ABI = 190, 8
_PTX = late(rb"(?:\s|//[^\n]*\n|/\*.*?\*/)*\.version\s", re.DOTALL)


class Content(str, Enum):
    """What an entry really holds: kernels, none (what a linker leaves where there are none), or no code at all."""

    KERNELS = "kernels"
    NO_KERNELS = "no kernels"
    NOT_CODE = "not code"


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
    out = _unpacked(data[:packed], entry.flags, unpacked, source.name)
    if len(out) != unpacked:
        raise BadInput(f"`{source.name}` is broken: GPU code is cut short", hint="build the file again")
    return out


def wanted(flags: int, stored: int) -> int:
    """How many bytes of the payload `content` needs."""
    return min(stored, _BLOCK if flags & ZSTD else _BEGINNING)


def work(flags: int, looked_at: int, *, header: bool) -> int:
    """What `content` costs, in steps of a budget; less where only the `header` of a cubin is unpacked."""
    return 16 if flags & ZSTD else looked_at // (64 if header else 16) if flags & LZ4 else 1


def content(entry: memoryview, target: Target, flags: int, *, small: bool) -> Content:
    """What an entry holds, by its header and the beginning of its payload (`wanted` bytes).

    Kernels are looked for only in a `small` container, and where all of an entry is at hand.
    """
    if len(entry) < _HEADER.size:
        return Content.NOT_CODE
    header, stored, packed, unpacked = _HEADER.unpack_from(entry)
    data = bytes(entry[header:])
    whole = len(data) == stored
    if flags & (LZ4 | ZSTD):
        if unpacked > _LARGEST:
            return Content.NOT_CODE
        whole = whole and unpacked <= _SMALL
        try:
            most = unpacked if small and whole else _BEGINNING if target.ptx else _CUBIN.size
            data = _beginning(data[:packed], flags, unpacked, most)
        except BadInput:
            return Content.NOT_CODE
    if not (_PTX.match(data) if target.ptx else _is_cubin(data, target)):
        return Content.NOT_CODE
    if small and whole and (b".entry" if target.ptx else b".text.") not in data:
        return Content.NO_KERNELS
    return Content.KERNELS


def _is_cubin(data: bytes, target: Target) -> bool:
    """The header of an ELF file for CUDA that says the same target: in the flags, a byte higher from CUDA 13 on."""
    if len(data) < _CUBIN.size:
        return False
    magic, _, abi, machine, flags = _CUBIN.unpack_from(data)
    capability = target.capability
    number = (flags >> 8 if abi >= _NEW_ABI else flags) & 0xFF
    return bool(magic == b"\x7fELF" and machine == _CUDA and number == capability.major * 10 + capability.minor)


def _unpacked(data: bytes, flags: int, size: int, name: str) -> bytes:
    return lz4_block(data, size, name) if flags & LZ4 else _zstd(data, size, size + 1, name)


def _beginning(data: bytes, flags: int, size: int, most: int) -> bytes:
    """Up to `most` of the `size` bytes that come out, of packed code of which `data` is the beginning."""
    return lz4_block(data, most, whole=False) if flags & LZ4 else _zstd(data, size, most)


def _zstd(data: bytes, size: int, most: int, name: str = "the data") -> bytes:
    try:
        return zstd_frame(data, most, largest=size)
    except (zstd_error(), EOFError):
        raise BadInput(f"`{name}` is broken: GPU code that does not decompress", hint="build the file again") from None
