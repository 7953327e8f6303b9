"""Windows libraries whose tables repeat, overlap, do not end or claim too much."""

from __future__ import annotations

import random
import struct

import msgspec

from tools.hostile import mostly


class Recipe(msgspec.Struct, kw_only=True):
    """`address` of everything is its place in the file plus 0x1000: one section holds all of it."""

    sections: int = 1
    libraries: int = 2
    thunks: int = 3
    shared_thunks: bool = True
    name: bytes = b"KERNEL32.dll"
    symbol: bytes = b"CreateFileW"
    ordinals: bool = False
    exports: int = 4
    functions: int | None = None
    name_step: int = 0
    endless: bool = False
    resource: int = 0
    claims: int | None = None
    delay: int = 0


def build(recipe: Recipe) -> bytes:
    head = bytearray(0x400 + 40 * max(recipe.sections - 1, 0))
    body = bytearray()

    def put(data: bytes) -> int:
        body.extend(bytes(-len(body) % 8))
        at = len(body)
        body.extend(data)
        return 0x1000 + at

    name = put(recipe.name + (b"" if recipe.endless else b"\0"))
    symbol = put(b"\0\0" + recipe.symbol + (b"" if recipe.endless else b"\0"))
    value = (1 << 63) | 7 if recipe.ordinals else symbol
    list_of = struct.pack("<Q", value) * recipe.thunks + (b"" if recipe.endless else bytes(8))
    thunks = put(list_of)
    rows = b"".join(
        struct.pack("<5I", thunks if recipe.shared_thunks else thunks + 8 * n, 0, 0, name, thunks)
        for n in range(recipe.libraries)
    )
    imports = put(rows + (b"" if recipe.endless else bytes(20)))
    delayed = put(struct.pack("<8I", 1, name, 0, 0, thunks, 0, 0, 0) * recipe.delay + bytes(32))
    functions = recipe.exports if recipe.functions is None else recipe.functions
    texts = put(recipe.symbol * 2 + b"\0")
    at_names = put(b"".join(struct.pack("<I", texts + n * recipe.name_step % 64) for n in range(recipe.exports)))
    at_ordinals = put(b"".join(struct.pack("<H", n % 65536) for n in range(recipe.exports)))
    at_functions = put(b"".join(struct.pack("<I", texts if n % 2 else 0x1000) for n in range(min(functions, 1 << 16))))
    counts = (1, functions if recipe.claims is None else recipe.claims, recipe.exports)
    exports = put(struct.pack("<4I6I", 0, 0, 0, name, *counts, at_functions, at_names, at_ordinals))
    version = struct.pack("<6I", 0xFEEF04BD, 0x10000, 0x10002, 0x30004, 0x10002, 0x30004)
    resource = put(bytes(recipe.resource) + version)
    _headers(head, recipe, len(body), (exports, imports, resource, delayed))
    return bytes(head) + bytes(body)


def _headers(head: bytearray, recipe: Recipe, size: int, places: tuple[int, int, int, int]) -> None:
    base = len(head)
    exports, imports, resource, delayed = places
    head[:2] = b"MZ"
    struct.pack_into("<I", head, 0x3C, 0x80)
    struct.pack_into("<4sHHIIIHH", head, 0x80, b"PE\0\0", 0x8664, recipe.sections & 0xFFFF, 0, 0, 0, 240, 0x2022)
    optional = 0x80 + 24
    struct.pack_into("<H", head, optional, 0x20B)
    struct.pack_into("<Q", head, optional + 24, 0x180000000)
    directories = {0: (exports, 0x200), 1: (imports, 40), 2: (resource, 24), 13: (delayed, 32 * recipe.delay)}
    for number, (address, length) in directories.items():
        struct.pack_into("<II", head, optional + 112 + 8 * number, address, length)
    table = optional + 240
    for number in range(min(recipe.sections, (len(head) - table) // 40)):
        place = 0x1000 if number == recipe.sections - 1 else 0x7F000000 + number
        struct.pack_into("<8s4I", head, table + 40 * number, b".rdata", size, place, size, base)


def random_recipe(dice: random.Random) -> Recipe:
    recipe = Recipe()
    for _ in range(dice.randrange(1, 3)):
        kind = dice.randrange(8)
        if kind == 0:
            recipe.libraries = mostly(dice, [0, 1, 30], [500, 4096, 5000], 0.9)
            recipe.thunks = mostly(dice, [0, 100, 1000], [5000, 50_000], 0.9)
            recipe.ordinals = dice.random() < 0.3
            recipe.shared_thunks = dice.random() < 0.7
        elif kind == 1:
            recipe.symbol = b"x" * dice.choice([0, 1, 5000, 8191, 9000])
            recipe.exports = mostly(dice, [10, 500, 2000], [60_000])
        elif kind == 2:
            recipe.sections = dice.choice([0, 1, 96, 97, 1000, 65_535])
        elif kind == 3:
            recipe.claims = dice.choice([0, 1 << 16, 999_999, 1 << 24, 0xFFFFFFFF])
        elif kind == 4:
            recipe.endless = True
        elif kind == 5:
            recipe.resource = mostly(dice, [0, 1 << 16], [9 << 20])
        elif kind == 6:
            recipe.delay = dice.choice([1, 100, 5000])
            recipe.thunks = mostly(dice, [3, 500], [50_000])
        else:
            recipe.functions, recipe.exports = mostly(dice, [0, 5], [65_535]), mostly(dice, [0, 5], [65_535])
            recipe.name_step = dice.choice([0, 1, 7])
    return recipe
