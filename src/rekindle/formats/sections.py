"""What is read through the section table: for a whole environment, where reading every byte would take minutes.

nvcc puts its containers into sections of their own (`.nv_fatbin` and `__nv_relfatbin` in ELF, cut to eight letters in
PE). A file without such a section has no GPU code and is not read further; in one that has, only the headers are. Texts
in the read-only data tell what a module was compiled against.
"""

from __future__ import annotations

import msgspec

from rekindle.formats import elf, fatbin, pe
from rekindle.formats.access import Bytes, Slice, blocks
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


# NumPy's headers put the name of the module they import into whatever includes them; 2.0 renamed it.
_NUMPY_2 = b"numpy._core._multiarray_umath"
_NUMPY_1 = b"numpy.core._multiarray_umath"
_READABLE, _WRITABLE, _EXECUTABLE = 4, 2, 1
_MOST = 96 << 20


def numpy_abi(source: Bytes) -> str | None:
    """`1` or `2`: the NumPy whose headers a module was compiled with; None when it uses none or cannot be searched.

    Headers of NumPy 2 leave both names behind, because what they make runs on NumPy 1 too.
    """
    old = False
    tail = b""
    for data in (each for at, size in _regions(source) for each in blocks(source, at, min(at + size, source.size))):
        window = tail + data
        if _NUMPY_2 in window:
            return "2"
        old = old or _NUMPY_1 in window
        tail = window[-len(_NUMPY_2) :]
    return "1" if old else None


def _regions(source: Bytes) -> list[tuple[int, int]]:
    head = source.read(0, 4)
    if head[:4] == elf.MAGIC:
        loaded = [s for s in elf.segments(source) if s.loaded]
        plain = [(s.offset, s.size) for s in loaded if not s.flags & (_WRITABLE | _EXECUTABLE)]
        # Old linkers put constants and code into one segment.
        found = plain if len(plain) > 1 else [(s.offset, s.size) for s in loaded if not s.flags & _WRITABLE]
    elif head[:2] == pe.MAGIC:
        found = [(s.offset, s.stored) for s in pe.sections(source) if s.name == ".rdata"]
    else:
        found = []
    return found if sum(size for _, size in found) <= _MOST else []
