"""A shared library of a few hundred bytes: one segment with the dynamic symbols, and no code."""

from __future__ import annotations

import struct

HASH, STRTAB, SYMTAB, STRSZ, SYMENT = 4, 5, 6, 10, 11


def library(*names: str) -> bytes:
    """An ELF file that defines these names."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    table, at = bytes(24), 1
    for name in names:
        table += struct.pack("<IBBHQQ", at, 0x12, 0, 1, 0x1000, 8)
        at += len(name) + 1
    begin = 64 + 2 * 56
    symbols = begin + 6 * 16
    text = symbols + len(table)
    hashes = text + len(strings)
    entries = ((SYMTAB, symbols), (STRTAB, text), (STRSZ, len(strings)), (SYMENT, 24), (HASH, hashes), (0, 0))
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    chains = struct.pack("<III", 1, len(names) + 1, 1) + struct.pack("<I", 0) * (len(names) + 1)
    size = hashes + len(chains)
    segments = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096)
    segments += struct.pack("<IIQQQQQQ", 2, 4, begin, begin, begin, len(dynamic), len(dynamic), 8)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    return head + segments + dynamic + table + strings + chains
