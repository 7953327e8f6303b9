"""GPU code found through the section table: for a whole environment, where reading every byte would take minutes.

nvcc puts its containers into sections of their own (`.nv_fatbin` and `__nv_relfatbin` in ELF, cut to eight letters in
PE). A file without such a section has no GPU code and is not read further; in one that has, only the headers are.
"""

from __future__ import annotations

import msgspec

from rekindle.formats import elf, fatbin, pe
from rekindle.formats.access import Bytes, Slice
from rekindle.knowledge.gpu.gpu_code import GpuCode

_NAMES = (".nv_fatb", "__nv_rel")
# cuFFT keeps 23,983 of its 23,984 containers in `.data`; nobody else's `.data` is that large.
_LARGE_DATA = 8 << 20


def gpu_code(source: Bytes) -> GpuCode:
    """The GPU code of an ELF or PE file. A file without a section table is searched from end to end."""
    found = regions(source)
    if found is None:
        return fatbin.gpu_code(source.name, fatbin.scan(source))
    containers: list[fatbin.Container] = []
    for name, offset, size in found:
        part = Slice(source, offset, size, source.name)
        # What lies in `.data` is nearly all that cuFFT has: there it counts.
        section = name if name.startswith(_NAMES) else None
        containers += [msgspec.structs.replace(container, section=section) for container in fatbin.scan(part)]
    return fatbin.gpu_code(source.name, containers)


def regions(source: Bytes) -> list[tuple[str, int, int]] | None:
    """Name, offset and size of every section with GPU code; None when the file has no section table to ask."""
    head = source.read(0, 4)
    if head[:4] == elf.MAGIC:
        found = elf.sections(source)
    elif head[:2] == pe.MAGIC:
        found = [(section.name, section.offset, section.stored) for section in pe.sections(source)]
    else:
        return None
    if not found:
        return None
    return [
        (name, at, size)
        for name, at, size in found
        if name.startswith(_NAMES) or (name == ".data" and size > _LARGE_DATA)
    ]
