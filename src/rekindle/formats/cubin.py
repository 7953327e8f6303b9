"""The kernels of a cubin, with what each takes of a multiprocessor; and the kernels that a PTX text offers.

A cubin is an ELF file for the GPU. Established with nvcc 11.8 against `cuobjdump --dump-resource-usage`
(`tests/real/test_cubin.py`):

    .text.NAME        the code; the top byte of `sh_info` is the number of registers of a thread, up to sm_89
    .nv.info          attributes of the whole; kind 47 has the number of a symbol and that kernel's registers
    .nv.shared.NAME   its size is the static shared memory
    .nv.info.NAME     attributes: u8 format, u8 kind, u16 value or size, data; kind 5 is `__launch_bounds__` (three
                      u32), kind 16 the block size that the source demands
    .symtab           bit 0x10 of `st_other` marks a kernel, as opposed to a device function
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import msgspec

from rekindle.core.errors import BadInput
from rekindle.core.pattern import late

_HEAD = struct.Struct("<4s3B9xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_CUDA, _SYMTAB, _KERNEL = 190, 2, 0x10
_SIZED, _MAX_THREADS, _REQUIRED_THREADS, _REGISTERS = 4, 0x05, 0x10, 0x2F
_ENTRY = late(rb"^[ \t]*(?:\.visible[ \t]+|\.weak[ \t]+)*\.entry[ \t]+([A-Za-z_$%][\w$]*)", re.MULTILINE)


class CubinKernel(msgspec.Struct, frozen=True, kw_only=True):
    """`max_threads` is the launch bound of the source, None without one; `required` means that no other size runs."""

    name: str
    registers: int
    shared: int = 0
    max_threads: int | None = None
    required: bool = False


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: int
    offset: int
    size: int
    info: int
    link: int


def kernels(data: bytes, name: str = "the cubin") -> tuple[CubinKernel, ...]:
    """The kernels of a cubin, in the order of their names."""
    try:
        rows = _sections(data)
        offered = _kernel_names(data, rows)
        counts = _register_counts(data, rows)
    except (struct.error, IndexError, ValueError) as error:
        raise BadInput(f"`{name}` is broken: its cubin cannot be read ({error})", hint="build it again") from error
    by_name = {row.name: row for row in rows}
    found = []
    for number, kernel in sorted(offered.items(), key=lambda one: one[1]):
        text = by_name.get(f".text.{kernel}")
        if text is None:
            raise BadInput(f"`{name}` is broken: kernel `{kernel[:80]}` has no code", hint="build it again")
        registers = counts.get(number) or text.info >> 24
        if not registers:
            raise BadInput(f"`{name}` does not say how many registers `{kernel[:80]}` takes", hint="build it again")
        shared = by_name.get(f".nv.shared.{kernel}")
        bound, required = _launch_bound(data, by_name.get(f".nv.info.{kernel}"))
        found.append(
            CubinKernel(
                name=kernel,
                registers=registers,
                shared=shared.size if shared else 0,
                max_threads=bound,
                required=required,
            )
        )
    return tuple(found)


def ptx_kernels(text: bytes) -> frozenset[str]:
    """The names of the kernels in a PTX text."""
    return frozenset(name.decode() for name in _ENTRY.findall(text))


def _sections(data: bytes) -> list[_Row]:
    head = _HEAD.unpack_from(data)
    if head[0] != b"\x7fELF" or head[1:3] != (2, 1) or head[5] != _CUDA:
        raise ValueError("not a 64-bit ELF file for CUDA")
    at, width, count, names = head[9], head[14], head[15], head[16]
    if width != _SECTION.size or not names < count or at + width * count > len(data):
        raise ValueError("its section table lies outside the file")
    raw = [_SECTION.unpack_from(data, at + width * number) for number in range(count)]
    texts = _part(data, raw[names][4], raw[names][5])
    return [
        _Row(name=_text(texts, row[0]), kind=row[1], offset=row[4], size=row[5], link=row[6], info=row[7])
        for row in raw
    ]


def _kernel_names(data: bytes, rows: list[_Row]) -> dict[int, str]:
    """The kernels by the number of their symbol."""
    offered = {}
    for table in rows:
        if table.kind != _SYMTAB:
            continue
        texts = _part(data, rows[table.link].offset, rows[table.link].size)
        part = _part(data, table.offset, table.size)
        for number, fields in enumerate(_SYMBOL.iter_unpack(part[: len(part) - len(part) % _SYMBOL.size])):
            index, _, other, section, _, _ = fields
            if other & _KERNEL and 0 < section < len(rows):
                offered[number] = _text(texts, index)
    return offered


def _register_counts(data: bytes, rows: list[_Row]) -> dict[int, int]:
    found: dict[int, int] = {}
    for row in rows:
        if row.name == ".nv.info":
            for kind, value in _attributes(_part(data, row.offset, row.size)):
                if kind == _REGISTERS and len(value) >= 8:
                    symbol, count = struct.unpack_from("<II", value)
                    found[symbol] = count
    return found


def _launch_bound(data: bytes, row: _Row | None) -> tuple[int | None, bool]:
    bound = None
    for kind, value in _attributes(_part(data, row.offset, row.size)) if row else ():
        if kind in (_MAX_THREADS, _REQUIRED_THREADS) and len(value) >= 12:
            x, y, z = struct.unpack_from("<III", value)
            bound = x * y * z
            if kind == _REQUIRED_THREADS:
                return bound, True
    return bound, False


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Those with data of their own; the others have their value in the place of the size."""
    at = 0
    while at + 4 <= len(info):
        form, kind, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _SIZED:
            yield kind, info[at : at + size]
            at += size


def _part(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise ValueError("a section lies outside the file")
    return data[offset : offset + size]


def _text(texts: bytes, index: int) -> str:
    end = texts.index(b"\0", index)
    return texts[index:end].decode()
