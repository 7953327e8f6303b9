"""Regenerates the CUDA rows of `cuda/host_compilers.json` from the real `crt/host_config.h` of each toolkit.

The header comes from the packages that carry it on the index (`nvidia-cuda-nvcc-cu11`, `-cu12`, `nvidia-cuda-crt`) or
from a toolkit on this machine (`--header FILE`). Rows of toolkits whose header cannot be had stay as they are.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tools.observe import index, table


def limits(header: str) -> dict[str, Any]:
    """What a `host_config.h` accepts: the numbers in the conditions that guard its #error lines."""
    msvc = re.search(r"_MSC_VER\s*<\s*(\d{4})\s*\|\|\s*_MSC_VER\s*>=\s*(\d{4})", header)
    gcc = re.search(r"#if\s+__GNUC__\s*>\s*(\d+)", header)
    clang = _clang(header)
    return {
        "msc_ver_min": int(msvc[1]) if msvc else None,
        "msc_ver_below": int(msvc[2]) if msvc else None,
        "gcc_max": int(gcc[1]) if gcc else None,
        "clang_min": f"{clang[1]}.{clang[2]}" if clang else None,
        "clang_below": clang[0] if clang else None,
    }


def _clang(header: str) -> tuple[int, int, int] | None:
    """The generic condition: a line for one platform alone (13.4 has one for __HORIZON__) sets a lower limit."""
    found = [
        (int(match[1]), int(match[2]), int(match[3]))
        for match in re.finditer(
            r"__clang_major__\s*>=\s*(\d+)\)?\s*\|\|\s*\(?__clang_major__\s*<\s*(\d+)\)?\s*\|\|"
            r"\s*\(?\(?__clang_major__\s*==\s*\d+\)?\s*&&\s*\(?__clang_minor__\s*<\s*(\d+)",
            header,
        )
    ]
    return max(found) if found else None


def header_of(package: str, system: str = "linux") -> str | None:
    """The header inside a package of the index; None when it cannot be had."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = index.download(package, system, "3.11", Path(folder))
        if wheel is None:
            return None
        with zipfile.ZipFile(wheel) as archive:
            name = next((name for name in archive.namelist() if name.endswith("crt/host_config.h")), None)
            return archive.read(name).decode("utf-8", "replace") if name else None


def observe(cudas: list[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    current = table.read("host_compilers")
    read = 0
    for row in current["cuda"]:
        if not row["packages"] or (cudas and row["cuda"] not in cudas):
            continue
        header = header_of(row["packages"][-1])
        if header:
            read += 1
            row |= {**limits(header), "observed_at": table.today(), "evidence": "binary"}
    table.nothing_read("host_compilers", read)
    return current


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="append", help="only these toolkits")
    parser.add_argument("--header", type=Path, help="read this header and print what it accepts")
    arguments = parser.parse_args()
    if arguments.header:
        print(limits(arguments.header.read_text(encoding="utf-8", errors="replace")))
    else:
        table.write("host_compilers", observe(arguments.cuda))


if __name__ == "__main__":
    main()
