"""ELF files with tables that repeat, overlap, point backwards or claim too much."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import msgspec

from tools.hostile import mostly

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RUNPATH = 1, 4, 5, 6, 10, 14, 29
_GNU_HASH, _VERSYM, _VERNEED, _VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF


class Recipe(msgspec.Struct, kw_only=True):
    """What goes into the file. `tables` are written behind each other; the dynamic section points at them."""

    needed: int = 2
    strings_last: bool = False
    """The string table's place is told behind all the needs that want it."""
    strings: bytes = b"\0libc.so.6\0GLIBC_2.17\0name\0"
    name_at: Sequence[int] = (1,)
    needs: int = 1
    versions: int = 1
    need_step: int = 16
    version_step: int = 16
    symbols: int = 4
    symbol_names: Sequence[int] = (22,)
    hash_says: int | None = None
    gnu_buckets: int | None = None
    sections: int = 0
    section_names: bytes = b"\0.text\0"
    section_name_at: Sequence[int] = (1,)
    symtab: bool = False
    segments: int = 0
    segment_size: int = 4096
    segment_step: int = 1
    padding: int = 0


def build(recipe: Recipe) -> bytes:
    out = bytearray(64)
    count = 2 + recipe.segments
    out += bytes(56 * count)
    places: dict[str, int] = {}

    def put(name: str, data: bytes) -> int:
        out.extend(bytes(-len(out) % 8))
        places[name] = len(out)
        out.extend(data)
        return places[name]

    put("strings", recipe.strings)
    versions = _versions(recipe)
    put("versions", versions)
    symbol_rows = [
        struct.pack("<IBBHQQ", recipe.symbol_names[n % len(recipe.symbol_names)], 0x10, 0, n % 2, 0, 0)
        for n in range(recipe.symbols)
    ]
    put("symbols", b"".join(symbol_rows))
    put("versym", bytes(2 * recipe.symbols))
    if recipe.gnu_buckets is None:
        put("hash", struct.pack("<II", 1, recipe.symbols if recipe.hash_says is None else recipe.hash_says) + bytes(16))
    else:
        put("hash", struct.pack("<IIII", recipe.gnu_buckets, 1, 0, 0) + bytes(4 * min(recipe.gnu_buckets, 1 << 16)))
    strings = [(_STRTAB, places["strings"]), (_STRSZ, len(recipe.strings))]
    needs = [(_NEEDED, recipe.name_at[n % len(recipe.name_at)]) for n in range(recipe.needed)]
    dynamic = [*needs, *strings] if recipe.strings_last else [*strings, *needs]
    dynamic += [(_VERNEED, places["versions"]), (_VERNEEDNUM, recipe.needs), (_SYMTAB, places["symbols"])]
    dynamic += [(_VERSYM, places["versym"]), (_HASH if recipe.gnu_buckets is None else _GNU_HASH, places["hash"])]
    dynamic += [(_SONAME, recipe.name_at[-1]), (_RUNPATH, recipe.name_at[-1]), (0, 0)]
    at = put("dynamic", b"".join(struct.pack("<QQ", tag, value) for tag, value in dynamic))
    out.extend(bytes(recipe.padding))
    table, number = _sections(recipe, out, places)
    rows = [(_DYNAMIC, 6, at, at, 16 * len(dynamic)), (_LOAD, 4, 0, 0, len(out))]
    rows += [
        (_LOAD, 4, n * recipe.segment_step % len(out), 1 << 40, recipe.segment_size) for n in range(recipe.segments)
    ]
    for index, (kind, flags, offset, address, size) in enumerate(rows):
        struct.pack_into("<IIQQQQQQ", out, 64 + 56 * index, kind, flags, offset, address, address, size, size, 8)
    ident = b"\x7fELF\2\1\1" + bytes(9)
    struct.pack_into(
        "<16sHHIQQQIHHHHHH", out, 0, ident, 3, 62, 1, 0, 64, table, 0, 64, 56, min(count, 0xFFFF), 64,
        min(number, 0xFFFF), 1 if number else 0,
    )  # fmt: skip
    return bytes(out)


def _versions(recipe: Recipe) -> bytes:
    """Needs that lie `need_step` bytes apart, each with names that lie `version_step` bytes apart: they may overlap."""
    size = 32 + recipe.need_step * min(recipe.needs, 4096) + recipe.version_step * min(recipe.versions, 4096)
    data = bytearray(size)
    for number in range(min(recipe.needs, 4096)):
        at = recipe.need_step * number
        last = number == recipe.needs - 1
        first = recipe.need_step * min(recipe.needs, 4096) - at
        if at + 16 <= size:
            values = (1, min(recipe.versions, 0xFFFF), recipe.name_at[0], first, 0 if last else recipe.need_step)
            struct.pack_into("<HHIII", data, at, *values)
    begin = recipe.need_step * min(recipe.needs, 4096)
    for number in range(min(recipe.versions, 4096)):
        at = begin + recipe.version_step * number
        if at + 16 <= size:
            struct.pack_into("<IHHII", data, at, 0, 0, 2, recipe.name_at[-1], recipe.version_step)
    return bytes(data)


def _sections(recipe: Recipe, out: bytearray, places: dict[str, int]) -> tuple[int, int]:
    if not recipe.sections and not recipe.symtab:
        return 0, 0
    names = recipe.section_names + b"\0.symtab\0.strtab\0.nv_fatbin\0"
    base = len(recipe.section_names) + 1
    names_at = len(out)
    out.extend(names)
    rows = [(0, 0, 0, 0, 0), (1, 3, 0, names_at, len(names))]
    if recipe.symtab:
        rows.append((base, 2, 0, places["symbols"], 24 * recipe.symbols))
        rows.append((base + 8, 3, 0, places["strings"], len(recipe.strings)))
        rows.append((base + 16, 1, 0, 0, len(out)))
    some = recipe.section_name_at
    rows += [(some[n % len(some)], 1, n, n, 16) for n in range(recipe.sections)]
    out.extend(bytes(-len(out) % 8))
    table = len(out)
    for name, kind, address, offset, size in rows:
        out.extend(struct.pack("<IIQQQQIIQQ", name, kind, 0, address, offset, size, 0, 0, 1, 0))
    return table, len(rows)


def random_recipe(dice: random.Random) -> Recipe:
    """One or two things out of proportion, the rest ordinary."""
    recipe = Recipe()
    for _ in range(dice.randrange(1, 3)):
        _twist(recipe, dice)
    return recipe


def packed_recipe(dice: random.Random) -> Recipe:
    """The same for a member of a zip, where nothing costs next to nothing: zeros that many segments claim."""
    recipe = random_recipe(dice)
    if dice.random() < 0.01:
        recipe.padding = dice.choice([40 << 20, 64 << 20])
        recipe.segments = dice.choice([3, 5, 40])
        recipe.segment_size = dice.choice([4096, 15 << 20])
        recipe.segment_step = dice.choice([1, recipe.segment_size])
    return recipe


def _twist(recipe: Recipe, dice: random.Random) -> None:
    many = mostly(dice, [0, 1, 40, 300], [4096, 20_000, 65_000], 0.9)
    kind = dice.randrange(8)
    if kind == 0:
        recipe.needed, recipe.strings_last = many, dice.random() < 0.7
        if dice.random() < 0.3:
            recipe.strings = b"\0" + b"l" * dice.choice([100, 4000, 8000])
            recipe.name_at = tuple(range(1, 100))
    elif kind == 1:
        recipe.needs = recipe.versions = mostly(dice, [1, 16, 100], [4096, 4096, 65_000], 0.75)
        recipe.need_step = recipe.version_step = dice.choice([16, 16, 16, 4, 1, 0])
    elif kind == 2:
        recipe.strings = (
            b"\0" + b"s" * mostly(dice, [1000, 70_000], [1 << 20]) + (b"" if dice.random() < 0.5 else b"\0")
        )
        recipe.symbol_names = tuple(dice.randrange(1, len(recipe.strings)) for _ in range(50))
        recipe.symbols = mostly(dice, [4, 300, 3000], [20_000])
    elif kind == 3:
        recipe.hash_says = dice.choice([0, 1 << 20, 1 << 24, 0xFFFFFFFF])
    elif kind == 4:
        recipe.gnu_buckets = dice.choice([0, 1, 1000, 1 << 16, 1 << 24, 0xFFFFFFFF])
    elif kind == 5:
        recipe.sections = many
        length = mostly(dice, [100, 5000], [1 << 16, 1 << 20])
        recipe.section_names = b"\0" + b"n" * length
        recipe.section_name_at = tuple(dice.randrange(length) for _ in range(200))
    elif kind == 6:
        recipe.segments = many
        recipe.segment_size = dice.choice([0, 4096, 1 << 20, 15 << 20, 0xFFFFFFFFFFFFFFFF])
        recipe.padding = mostly(dice, [0, 1 << 16], [1 << 22])
    else:
        recipe.symtab = True
        recipe.symbols = mostly(dice, [10, 300, 3000], [20_000])
        recipe.strings = b"\0" + b"u" * dice.choice([100, 70_000])
        recipe.symbol_names = tuple(range(1, 90))
