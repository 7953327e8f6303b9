"""The least that is a DLL, with chosen imports: no compiler is needed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path


def dll(path: Path, imports: Sequence[str] = (), delayed: Sequence[str] = (), texts: Sequence[bytes] = ()) -> Path:
    """The least that is a DLL: headers, one section, an import and a delay-import table, and texts in its data."""
    base = 0x1000
    tables = 20 * (len(imports) + 1)
    later = 32 * (len(delayed) + 1)
    names = base + tables + later
    body, text = b"", b""
    for name in imports:
        body += struct.pack("<IIIII", base + 0x700, 0, 0, names + len(text), base + 0x700)
        text += name.encode() + b"\0"
    body += bytes(20)
    for name in delayed:
        body += struct.pack("<IIIIIIII", 1, names + len(text), 0, 0, 0, 0, 0, 0)
        text += name.encode() + b"\0"
    body += bytes(32) + text + b"".join(b"\0\0\0" + each + b"\0\0\0" for each in texts)
    body = body.ljust(0x800, b"\0")
    directories = [(0, 0)] * 16
    directories[1] = (base, tables) if imports else (0, 0)
    directories[13] = (base + tables, later) if delayed else (0, 0)
    optional = struct.pack("<HBBIIIII", 0x20B, 14, 0, 0, len(body), 0, 0, base)
    optional += struct.pack("<QIIHHHHHHIIIIHHQQQQII", 0x180000000, 0x1000, 0x200, 6, 0, 0, 0, 6, 0, 0, 0x3000, 0x400, 0,
                            2, 0, 1 << 20, 4096, 1 << 20, 4096, 0, 16)  # fmt: skip
    optional += b"".join(struct.pack("<II", *pair) for pair in directories)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 1, 0, 0, 0, len(optional), 0x2022)
    section = struct.pack("<8sIIIIIIHHI", b".rdata", len(body), base, len(body), 0x400, 0, 0, 0, 0, 0x40000040)
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((head + coff + optional + section).ljust(0x400, b"\0") + body)
    return path
