"""Zips that readers understand differently, or that unpack to more than they are."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib

from tools.hostile import mostly

LOCAL = struct.Struct("<4s5H3L2H")
ENTRY = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")
INFO = {
    "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
    "demo-1.0.dist-info/RECORD": b"demo/a.py,,\n",
}
NAMES = (
    "demo/a.py", "demo/b.so", "demo/x", "demo/x/y.py", "demo/A.py", "demo/CON.py", "demo/x.py:ads", "../up", "/abs",
    "demo//d", "demo/./e", "demo/\u202egnp.py", "demo/\x1b[2J", "demo/\u00e9", "demo/e\u0301", "demo/n\0ul",
    "demo/bs\\x",
)  # fmt: skip


def made(dice: random.Random, library: bytes = b"") -> bytes:
    """A wheel with one or two lies in it."""
    lies = dice.sample(range(16), dice.randrange(0, 3))
    names = ["demo/__init__.py", *INFO, *dice.sample(NAMES, dice.randrange(0, 3))]
    if 1 in lies:
        names.append(dice.choice(names))
    prefix = b"#!/bin/sh\n" if 2 in lies else b""
    body, listed, count = bytearray(prefix), bytearray(), 0
    for number, name in enumerate(names):
        data = library if name == "demo/b.so" else INFO.get(name, b"x = %d\n" % number)
        lie = dice.choice(lies) if lies and dice.random() < 0.5 else -1
        count += 1
        if lie == 3:
            body += _local(b"demo/hidden.py", b"evil\n", 0, zlib.crc32(b"evil\n"))
        at = len(body) - (len(prefix) if dice.random() < 0.5 else 0)
        flags = 0 if name.isascii() else 0x800
        flags = {4: flags | 1, 5: flags | 8, 6: flags & ~0x800, 7: flags | 0x2000}.get(lie, flags)
        raw = name.encode()
        crc = zlib.crc32(data) ^ (lie == 8)
        told = raw if lie != 9 else b"demo/other.py"[: len(raw)].ljust(len(raw), b"_")
        body += _local(told, data, flags if lie != 10 else flags ^ 0x800, crc if lie != 11 else 0)
        size = len(data) if lie != 12 else dice.choice([0, len(data) + 1, 0xFFFFFFFF])
        listed += ENTRY.pack(
            b"PK\1\2", 0x314, 20, flags, 0, 0, 33, crc, len(data), size, len(raw), 0, 0, 0, 0,
            (0o120777 if lie == 13 else 0o100644) << 16, at,
        )  # fmt: skip
        listed += raw
    return bytes(body) + _ending(dice, lies, len(body), bytes(listed), count)


def _local(name: bytes, data: bytes, flags: int, crc: int) -> bytes:
    return LOCAL.pack(b"PK\3\4", 20, flags, 0, 0, 33, crc, len(data), len(data), len(name), 0) + name + data


def _ending(dice: random.Random, lies: list[int], begin: int, listed: bytes, count: int) -> bytes:
    evil = _local(b"demo/__init__.py", b"evil = 1\n", 0, zlib.crc32(b"evil = 1\n"))
    if 14 in lies:
        # A second directory of the same size right before the end, for readers that look there.
        second = bytearray(listed)
        name_at = second.find(b"demo/__init__.py")
        struct.pack_into("<3L", second, name_at - 30, zlib.crc32(b"evil = 1\n"), 9, 9)
        struct.pack_into("<L", second, name_at - 4, begin + len(listed) - (len(listed) + len(evil)))
        return listed + evil + bytes(second) + END.pack(b"PK\5\6", 0, 0, count, count, len(listed), begin, 0)
    if 15 in lies:
        at = begin + len(listed)
        wide = END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, dice.choice([46, len(listed)]), begin)
        end = END.pack(b"PK\5\6", 0, 0, dice.choice([count, 0xFFFF]), count, len(listed), begin, 0)
        return listed + wide + LOCATOR.pack(b"PK\6\7", 0, at, 1) + end
    comment = dice.choice([b"", b"", b"", b"built by hand"])
    end = END.pack(b"PK\5\6", 0, 0, count, count, len(listed), begin, len(comment)) + comment
    return listed + end + (dice.choice([b"\0", end]) if 0 in lies else b"")


def packed(dice: random.Random, data: bytes, suffix: str = "so") -> bytes:
    """A library in a wheel, now and then several times: what one costs that is not counted, many cost many times."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(mostly(dice, [1], [8], 0.8) if len(data) < 8 << 20 else 1):
            archive.writestr(f"demo/lib{number}.{suffix}", data)
    return stream.getvalue()


def bomb(dice: random.Random) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=dice.choice([1, 9])) as archive:
        size = mostly(dice, [1 << 16, 1 << 20], [20 << 20], 0.9)
        for number in range(dice.choice([1, 2, 5, 20])):
            archive.writestr(f"demo/{number}.so", bytes(size))
    return stream.getvalue()
