"""A libcuda.so to link against where there is no driver, made of the names in the toolkit's headers.

NVIDIA's installer and Debian's packages have one; the wheels of the package index do not, and CMake then has no
`CUDA::cuda_driver`: configuring PyTorch ends with an error. What is linked asks for `libcuda.so.1`, the driver's own.
Should the stub itself ever be loaded, every function answers CUDA_ERROR_STUB_LIBRARY, as NVIDIA's does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import msgspec

SONAME = "libcuda.so.1"
# The headers of a toolkit that declare functions of the driver's library.
HEADERS = tuple(f"include/{name}.h" for name in ("cuda", "cudaEGL", "cudaGL", "cudaProfiler", "cudaVDPAU"))
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DECLARED = re.compile(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(")
# `#define cuMemAlloc cuMemAlloc_v2`; within __CUDA_API_PTSZ() or __CUDA_API_PTDS() for default streams per thread.
_RENAMED = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+cu[A-Z]\w*[ \t]{1,99}(?:__CUDA_API_(PTSZ|PTDS)\([ \t]{0,9})?"
    r"(cu[A-Z]\w*)[ \t]{0,9}\)?[ \t\r]{0,9}$",
    re.MULTILINE,
)


class _Processor(msgspec.Struct, frozen=True):
    machine: int
    code: bytes


# return CUDA_ERROR_STUB_LIBRARY (34)
_PROCESSORS = {
    "x86_64": _Processor(62, bytes.fromhex("b822000000c3")),
    "aarch64": _Processor(183, bytes.fromhex("40048052c0035fd6")),
}
_ALIGN = 0x10000
_HEADER, _PROGRAM_HEADER, _SYMBOL, _SECTION_HEADER = 64, 56, 24, 64


def names(headers: str) -> tuple[str, ...]:
    """Every function that code compiled with these headers may ask the driver's library for."""
    text = _COMMENT.sub(" ", headers)
    found = set(_DECLARED.findall(text))
    for kind, name in _RENAMED.findall(text):
        found |= {name, f"{name}_{kind.lower()}"} if kind else {name}
    return tuple(sorted(found))


def knows(arch: str) -> bool:
    return arch in _PROCESSORS


def library(functions: Sequence[str], arch: str) -> bytes:
    """An ELF library that has these functions."""
    processor = _PROCESSORS[arch]
    strings = _Strings((SONAME, *functions))
    code_at = _HEADER + 4 * _PROGRAM_HEADER
    hash_at = _aligned(code_at + len(processor.code))
    hashes = _hash_table(functions)
    symbols_at = _aligned(hash_at + len(hashes))
    symbols = bytes(_SYMBOL) + b"".join(
        struct.pack("<IBBHQQ", strings.at[name], 0x12, 0, 1, code_at, len(processor.code)) for name in functions
    )
    strings_at = symbols_at + len(symbols)
    dynamic_at = _aligned(strings_at + len(strings.data))
    dynamic = b"".join(
        struct.pack("<QQ", tag, value)
        for tag, value in (
            *((14, strings.at[SONAME]), (4, hash_at), (5, strings_at), (6, symbols_at)),
            *((10, len(strings.data)), (11, _SYMBOL), (0, 0)),
        )
    )
    named = _Strings((".text", ".hash", ".dynsym", ".dynstr", ".dynamic", ".shstrtab"))
    named_at = dynamic_at + len(dynamic)
    sections_at = _aligned(named_at + len(named.data))
    programs = (
        (1, 5, 0, 0, dynamic_at, _ALIGN),  # read and run
        (1, 6, dynamic_at, dynamic_at + _ALIGN, len(dynamic), _ALIGN),  # the loader writes into it
        (2, 6, dynamic_at, dynamic_at + _ALIGN, len(dynamic), 8),
        (0x6474E551, 6, 0, 0, 0, 16),  # no stack that can be run
    )
    sections = (
        (named.at[".text"], 1, 6, code_at, code_at, len(processor.code), 0, 0, 4, 0),
        (named.at[".hash"], 5, 2, hash_at, hash_at, len(hashes), 3, 0, 8, 4),
        (named.at[".dynsym"], 11, 2, symbols_at, symbols_at, len(symbols), 4, 1, 8, _SYMBOL),
        (named.at[".dynstr"], 3, 2, strings_at, strings_at, len(strings.data), 0, 0, 1, 0),
        (named.at[".dynamic"], 6, 3, dynamic_at + _ALIGN, dynamic_at, len(dynamic), 4, 0, 8, 16),
        (named.at[".shstrtab"], 3, 0, 0, named_at, len(named.data), 0, 0, 1, 0),
    )
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQI", 3, processor.machine, 1, 0, _HEADER, sections_at, 0)
    header += struct.pack("<6H", _HEADER, _PROGRAM_HEADER, len(programs), _SECTION_HEADER, len(sections) + 1, 6)
    pieces = (
        (0, header),
        (
            _HEADER,
            b"".join(
                struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, align)
                for kind, flags, offset, address, size, align in programs
            ),
        ),
        *((code_at, processor.code), (hash_at, hashes), (symbols_at, symbols), (strings_at, strings.data)),
        *((dynamic_at, dynamic), (named_at, named.data)),
        (sections_at, bytes(_SECTION_HEADER) + b"".join(struct.pack("<IIQQQQIIQQ", *one) for one in sections)),
    )
    made = bytearray(max(at + len(piece) for at, piece in pieces))
    for at, piece in pieces:
        made[at : at + len(piece)] = piece
    return bytes(made)


class _Strings:
    """A string table: every name once, and where it begins."""

    def __init__(self, wanted: Sequence[str]) -> None:
        data, self.at = bytearray(1), dict[str, int]()
        for name in wanted:
            self.at[name] = len(data)
            data += name.encode() + b"\0"
        self.data = bytes(data)


def _hash_table(functions: Sequence[str]) -> bytes:
    """The loader's table: a chain of symbols for each remainder of their hashes. Symbol 0 is none."""
    count = max(1, len(functions) // 2)
    first, following = [0] * count, [0] * (len(functions) + 1)
    for index, name in enumerate(functions, start=1):
        place = _hash(name) % count
        following[index], first[place] = first[place], index
    return struct.pack(f"<{2 + count + len(following)}I", count, len(following), *first, *following)


def _hash(name: str) -> int:
    found = 0
    for letter in name.encode():
        found = (found << 4) + letter
        high = found & 0xF0000000
        found = (found ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return found


def _aligned(at: int) -> int:
    return -(-at // 16) * 16
