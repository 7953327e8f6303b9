"""Regenerates `cuda/system_symbols.json`: the C names that glibc and libgcc offer, read off Debian's packages.

    python -m tools.observe system_symbols FOLDER

FOLDER holds the packages libc6, libgcc-s1, libstdc++6, libatomic1, zlib1g and libcrypt1 of Debian 12, for amd64 and
arm64: the oldest C library that anybody builds PyTorch on today. `apt-get download NAME:amd64/bookworm` fetches one.
Some libraries ask for such names without a version, and only this list tells them from names that nobody offers.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from rekindle.formats import elf, unpacking
from rekindle.formats.access import Buffer
from tools.observe import table

LIBRARIES = (
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6"),
    *("libresolv.so.2", "libutil.so.1", "libanl.so.1", "libatomic.so.1", "libz.so.1", "libcrypt.so.1"),
    *("ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2"),
)
# C++ names of the standard library are told by their spelling; versions of glibc are symbols too.
_LEFT_OUT = ("_Z", "GLIBC", "GCC_", "CXXABI")


def observe(folder: str) -> dict[str, list[dict[str, Any]]]:
    names: dict[str, set[str]] = defaultdict(set)
    packages: dict[str, list[str]] = defaultdict(list)
    for package in sorted(Path(folder).glob("*.deb")):
        for library, symbols in _offered(package).items():
            names[library] |= symbols
            packages[library].append(package.name.replace("%3a", ":"))
    table.nothing_read("system_symbols", len(names))
    for library in (name for name in LIBRARIES if name not in names):
        print(f"UNVERIFIED: no package in {folder} holds {library}")
    return {"libraries": [_row(name, names[name], packages[name]) for name in LIBRARIES if name in names]}


def _offered(package: Path) -> dict[str, set[str]]:
    """The names that each library of a package defines. `libz.so.1` is a link to the file that holds the code."""
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    for entry in unpacking.entries(package):
        base = entry.name.rpartition("/")[2]
        if entry.link is not None:
            links[base] = entry.link.rpartition("/")[2]
        elif ".so" in base and "/gconv/" not in entry.name:
            files[base] = b"".join(entry.data)
    wanted = {name: links.get(name, name) for name in LIBRARIES}
    return {
        name: {one for one in elf.symbols(Buffer(files[file], file)).defined if not one.startswith(_LEFT_OUT)}
        for name, file in wanted.items()
        if file in files
    }


def _row(name: str, symbols: set[str], packages: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "symbols": " ".join(sorted(symbols)),
        "source": f"dynamic symbols of {name} in {', '.join(packages)}",
        "observed_at": table.today(),
        "evidence": "binary",
    }
