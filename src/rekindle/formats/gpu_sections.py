"""GPU code found through the section table: for a whole environment, where reading every byte would take minutes.

nvcc puts its containers into sections of their own (`.nv_fatbin` and `__nv_relfatbin` in ELF, cut to eight letters in
PE). A file without such a section has no GPU code and is not read further; in one that has, only the headers are.
"""

from __future__ import annotations

from rekindle.formats import elf, fatbin, pe
from rekindle.formats.access import Bytes
from rekindle.knowledge.gpu_code import GpuCode

_NAMES = (".nv_fatb", "__nv_rel")


class Region:
    """Part of a file, as a file of its own."""

    def __init__(self, source: Bytes, offset: int, size: int) -> None:
        self.name = source.name
        self.size = max(0, min(size, source.size - offset))
        self._source = source
        self._offset = offset

    def read(self, offset: int, size: int) -> bytes:
        if not 0 <= offset < self.size:
            return b""
        return self._source.read(self._offset + offset, min(size, self.size - offset))


def gpu_code(source: Bytes) -> GpuCode:
    """The GPU code of an ELF or PE file. A file without a section table is searched from end to end."""
    found = regions(source)
    if found is None:
        return fatbin.gpu_code(source.name, fatbin.scan(source))
    containers = [container for offset, size in found for container in fatbin.scan(Region(source, offset, size))]
    return fatbin.gpu_code(source.name, containers)


def regions(source: Bytes) -> list[tuple[int, int]] | None:
    """Offset and size of every section with GPU code; None when the file has no section table to ask."""
    head = source.read(0, 4)
    if head[:4] == elf.MAGIC:
        found = elf.sections(source)
    elif head[:2] == pe.MAGIC:
        found = [(section.name, section.offset, section.stored) for section in pe.sections(source)]
    else:
        return None
    return [(offset, size) for name, offset, size in found if name.startswith(_NAMES)] if found else None
