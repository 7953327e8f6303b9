"""Small wheels that look like torch: a library made byte by byte with GPU code in it, for any machine and system."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from support import small_wheels
from support.fatbins import container

_MACHINES = {"x86_64": 62, "aarch64": 183}


def elf(machine: str, *containers: tuple[str | bytes, ...]) -> bytes:
    """A shared library of three sections: none, `.nv_fatbin` with these containers, and the section names."""
    code = b"".join(container(*targets) for targets in containers)
    names = b"\0.nv_fatbin\0.shstrtab\0"
    begin = 64
    table = begin + len(code) + len(names)
    table += -table % 8
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, _MACHINES[machine], 1, 0, 0, table, 0, 64, 56, 0, 64, 3, 2)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 2, begin, begin, len(code), 0, 0, 16, 0)
    sections += struct.pack("<IIQQQQIIQQ", 12, 3, 0, 0, begin + len(code), len(names), 0, 0, 1, 0)
    body = header + code + names
    return body + bytes(table - len(body)) + sections


def wheel(
    folder: Path,
    *,
    libraries: Mapping[str, tuple[tuple[str | bytes, ...], ...]],
    version: str = "2.7.1+cu118",
    cuda: str | None = "11.8",
    tag: str = "cp311-cp311-manylinux_2_28_x86_64",
    project: str = "torch",
    metadata: str = "",
) -> Path:
    """`libraries` maps a file in the wheel to its containers of GPU code; a `.fatbin` is nothing but these."""
    info = f"{project}-{version}.dist-info"
    machine = "aarch64" if tag.endswith(("aarch64", "arm64")) else "x86_64"
    files = {
        name: b"".join(container(*targets) for targets in containers)
        if name.endswith(".fatbin")
        else elf(machine, *containers)
        for name, containers in libraries.items()
    }
    if project == "torch":
        files["torch/__init__.py"] = b""
        files["torch/version.py"] = f"__version__ = '{version}'\ncuda = {cuda!r}\n".encode()
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n{metadata}".encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    return small_wheels.make(folder, files, name=f"{project}-{version}-{tag}.whl")
