"""GPU code made by hand, byte by byte from the layout: the reader is tested against the format, not itself."""

from __future__ import annotations

import struct

FLAGS = {"": 0x11, "a": 0x100011, "f": 0x200011}


def cubin(number: int, kernel: str | None = "k") -> bytes:
    """An ELF file for CUDA with one kernel of eight registers, or without any."""
    names = b"\0.shstrtab\0.symtab\0" + (f".text.{kernel}\0".encode() if kernel else b"")
    symbols = bytes(24) + (struct.pack("<IBBHQQ", 25, 0x12, 0x10, 3, 0, 16) if kernel else b"")
    begin = 64 + len(names) + -len(names) % 8
    code = begin + len(symbols)
    table = code + 16
    rows = [
        bytes(64),
        struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, 64, len(names), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 11, 2, 0, 0, begin, len(symbols), 1, 1, 8, 24),
        struct.pack("<IIQQQQIIQQ", 19, 1, 6, 0, code, 16, 2, 8 << 24, 16, 0),
    ][: 4 if kernel else 3]
    head = b"\x7fELF\2\1\1\x33\7" + bytes(7)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, table, number, 64, 56, 0, 64, len(rows), 1)
    return (head + names).ljust(begin, b"\0") + symbols + bytes(16) + b"".join(rows)


def ptx(number: int, kernel: str | None = "k") -> bytes:
    text = f"\n.version 8.7\n.target sm_{number}\n.address_size 64\n"
    return (text + (f".visible .entry {kernel}()\n{{\nret;\n}}\n" if kernel else "")).encode()


def entry(
    target: str, *, payload: bytes | None = None, kind: int | None = None, flags: int = 0, isa: int = 87,
    unpacked: int = 0,
) -> bytes:  # fmt: skip
    """`sm_90a` is a cubin, `compute_86` PTX. Packed code (`flags`) needs its own payload and the size it unpacks to."""
    family, _, number = target.partition("_")
    suffix = number[-1] if number[-1] in "af" else ""
    is_ptx = family == "compute"
    if payload is None:
        payload = ptx(int(number.rstrip("af"))) if is_ptx else cubin(int(number.rstrip("af")))
    packed = len(payload) if unpacked else 0
    payload += b"\0" * (-len(payload) % 8)
    header = struct.pack("<HHIQ", kind or (1 if is_ptx else 2), 0x101, 64, len(payload))
    header += struct.pack("<II", packed, 0)
    header += struct.pack("<HHI", isa % 10 if is_ptx else 7, isa // 10 if is_ptx else 1, int(number.rstrip("af")))
    header += struct.pack("<II", 0, 0)
    header += struct.pack("<Q", FLAGS[suffix] | flags)
    header += struct.pack("<QQ", 0, unpacked)
    return header + payload


def stub(*targets: str) -> bytes:
    """The container that the device linker leaves where there are no kernels."""
    return container(*(entry(target, payload=cubin(int(target[3:]), None)) for target in targets))


def container(*targets: str | bytes) -> bytes:
    entries = b"".join(item if isinstance(item, bytes) else entry(item) for item in targets)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
