"""Regenerates `cuda/system_symbols.json`: the C names that glibc and libgcc offer, read off this machine's files.

    python -m tools.observe.system_symbols

Some libraries ask for them without a version, and only this list tells such a name from one that nobody offers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rekindle.formats import elf
from rekindle.formats.access import File
from tools.observe import table

LIBRARIES = (
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6"),
    *(
        "libresolv.so.2",
        "libutil.so.1",
        "libanl.so.1",
        "libatomic.so.1",
        "libz.so.1",
        "libcrypt.so.1",
        "ld-linux-aarch64.so.1",
        "ld-linux-x86-64.so.2",
    ),
)


def observe() -> dict[str, list[dict[str, Any]]]:
    rows = []
    for name in LIBRARIES:
        path = next((p for pattern in (f"*-linux-gnu/{name}", name) for p in Path("/lib").glob(pattern)), None)
        path = path or next(iter(Path("/usr/lib").glob(f"*-linux-gnu/{name}")), None)
        if path is None:
            continue
        with File(path) as file:
            # C++ names of the standard library are told by their spelling; versions of glibc are symbols too.
            names = sorted(n for n in elf.symbols(file).defined if not n.startswith(("_Z", "GLIBC", "GCC_", "CXXABI")))
        rows.append(
            {
                "name": name,
                "symbols": " ".join(names),
                "source": f"dynamic symbols of {name} of Debian 12",
                "observed_at": table.today(),
                "evidence": "binary",
            }
        )
    return {"libraries": rows}


if __name__ == "__main__":
    table.write("system_symbols", observe())
