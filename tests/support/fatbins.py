"""GPU code made by hand, byte by byte from the layout: the reader is tested against the format, not itself."""

from __future__ import annotations

import struct

FLAGS = {"": 0x11, "a": 0x100011, "f": 0x200011}


def entry(target: str, *, payload: bytes = b"\0" * 64, kind: int | None = None, flags: int = 0, isa: int = 87) -> bytes:
    """`sm_90a` is a cubin, `compute_86` PTX."""
    family, _, number = target.partition("_")
    suffix = number[-1] if number[-1] in "af" else ""
    ptx = family == "compute"
    payload += b"\0" * (-len(payload) % 8)
    header = struct.pack("<HHIQ", kind or (1 if ptx else 2), 0x101, 64, len(payload))
    header += struct.pack("<II", 0, 0)
    header += struct.pack("<HHI", isa % 10 if ptx else 7, isa // 10 if ptx else 1, int(number.rstrip("af")))
    header += struct.pack("<II", 0, 0)
    header += struct.pack("<Q", FLAGS[suffix] | flags)
    header += struct.pack("<QQ", 0, 0)
    return header + payload


def container(*targets: str | bytes) -> bytes:
    entries = b"".join(item if isinstance(item, bytes) else entry(item) for item in targets)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
