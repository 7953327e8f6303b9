"""Containers of GPU code and static archives: tiny, many, nested, cut off, or longer than they are."""

from __future__ import annotations

import random
import struct

from tools.hostile import elf, mostly


def entry(dice: random.Random, room: int = 64) -> bytes:
    size = dice.choice([0, 0, 8, room, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF])
    header = struct.pack("<HHIQ", dice.choice([1, 2, 8, 0x100]), 0x101, dice.choice([64, 64, 64, 4096, 48]), size)
    header += struct.pack("<II", dice.choice([0, 0, 99]), 0)
    header += struct.pack("<HHI", 7, 8, dice.choice([35, 50, 90, 120, 999, 7, 0xFFFFFFFF]))
    header += struct.pack("<IIQQQ", 0, 0, dice.choice([0x11, 0x100011, 0x200011, 0x2011]), 0, 0)
    return header[:64] + bytes(size if size <= 64 else 0)


def fatbin(dice: random.Random) -> bytes:
    kind = dice.randrange(4)
    if kind == 0:
        one = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + _plain()
        return one * mostly(dice, [1, 100, 700], [5000, 40_000])
    if kind == 1:
        many = mostly(dice, [1, 100, 1000], [60_000])
        return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64 * many) + _plain() * many
    if kind == 2:
        return struct.pack("<I", 0xBA55ED50) * mostly(dice, [10, 1000], [200_000])
    entries = b"".join(entry(dice) for _ in range(dice.randrange(1, 30)))
    claimed = dice.choice([len(entries), len(entries) * 2, 0, 0xFFFFFFFFFFFFFFFF])
    return bytes(dice.randrange(40)) + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, claimed) + entries


def _plain() -> bytes:
    return struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, 0, 0, 0, 7, 1, 70, 0, 0, 0x11, 0, 0)[:64]


def static(dice: random.Random) -> bytes:
    out = bytearray(b"!<arch>\n")
    names = b"n" * mostly(dice, [0, 100, 1 << 16], [4 << 20])
    out += _member(b"//", names)
    inner = elf.build(elf.random_recipe(dice)) if dice.random() < 0.3 else b"\x50\xed\x55\xba" + bytes(60)
    inner = inner if len(inner) < 1 << 20 else b"x"
    members = mostly(dice, [0, 1, 50, 300], [3000, 20_000])
    lying = dice.randrange(members) if members and dice.random() < 0.2 else -1
    kinds = dice.choice([(b"a.o/", b"/%d", b"#1/4", b"#1/9999999", b"/"), (b"/%d",)])
    for number in range(members):
        name = dice.choice(kinds).replace(b"%d", b"%d" % dice.randrange(max(len(names), 100)))
        out += _member(name, inner if number < 3 else b"", dice if number == lying else None)
    # GPU code somewhere, so that the sections of the objects are asked for.
    return bytes(out) + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + _plain()


def _member(name: bytes, data: bytes, lying: random.Random | None = None) -> bytes:
    size = lying.choice([0, len(data) + 1, 9_999_999_999]) if lying else len(data)
    head = (
        name[:16].ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"644".ljust(8) + str(size).encode()[:10].ljust(10)
    )
    return head + b"`\n" + data + (b"\n" if len(data) % 2 else b"")
