"""GPU code found through the section table: for a whole environment, where reading every byte would take minutes.

nvcc puts its containers into sections of their own (`.nv_fatbin` and `__nv_relfatbin` in ELF, cut to eight letters in
PE). A file without such a section has no GPU code and is not read further; in one that has, only the headers are.
"""

from __future__ import annotations

from rekindle.formats import elf, fatbin, pe
from rekindle.formats.access import Bytes
from rekindle.knowledge.gpu_code import GpuCode

_NAMES = (".nv_fatb", "__nv_rel")
# cuFFT keeps 23,983 of its 23,984 containers in `.data`; nobody else's `.data` is that large.
_LARGE_DATA = 8 << 20
_WORTH_SAMPLING = 64 << 20
_PIECES, _PIECE = 256, 32 << 10


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


def gpu_code(source: Bytes, *, sample: bool = False) -> GpuCode:
    """The GPU code of an ELF or PE file. A file without a section table is searched from end to end.

    With `sample`, of a section larger than 64 MB only pieces are looked at, evenly spread: enough to know which cards
    a library of tens of thousands of kernels was made for, not to count them.
    """
    found = regions(source)
    parts: list[Bytes] = [source] if found is None else [Region(source, offset, size) for offset, size in found]
    containers: list[fatbin.Container] = []
    for part in parts:
        containers += _some(part) if sample and part.size > _WORTH_SAMPLING else fatbin.scan(part)
    return fatbin.gpu_code(source.name, containers)


def _some(part: Bytes) -> list[fatbin.Container]:
    found: dict[int, fatbin.Container] = {}
    for number in range(_PIECES):
        at = part.size * number // _PIECES
        scanner = fatbin.Scanner(part.size, part.name)
        scanner.wanted = at
        scanner.feed(at, part.read(at, _PIECE))
        found |= {container.offset: container for container in scanner.finish()}
    return list(found.values())


def regions(source: Bytes) -> list[tuple[int, int]] | None:
    """Offset and size of every section with GPU code; None when the file has no section table to ask."""
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
        (at, size) for name, at, size in found if name.startswith(_NAMES) or (name == ".data" and size > _LARGE_DATA)
    ]
