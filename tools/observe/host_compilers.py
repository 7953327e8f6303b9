"""Regenerates `cuda/host_compilers.json`: which compilers each toolkit takes, from its real `crt/host_config.h`.

    python -m tools.observe host_compilers

The header is read by ranges out of the packages that carry it on the index. Toolkits before 11.7 and the numbers of
Visual Studio were read by a person, off installers and pages: `stated/host_compilers.toml` holds them and their source,
and they are called UNVERIFIED here.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tools.observe import table, web

STATED = Path(__file__).parent / "stated" / "host_compilers.toml"
PACKAGES = ("nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-crt")
SOURCE = "crt/host_config.h inside the wheels of the Python index"
_ABOUT = ("source", "observed_at", "evidence")
_LIMITS = ("msc_ver_min", "msc_ver_below", "gcc_max", "clang_min", "clang_below")
FIELDS = ("cuda", *_LIMITS, "packages", "note", *_ABOUT)
TOOLSET = ("visual_studio", "release", "toolset", "msc_ver", *_ABOUT)
STL = ("first_toolset", "last_toolset", "min_cuda", *_ABOUT)


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


def header_of(url: str) -> str | None:
    """The header inside a wheel of the index, read by ranges; None when it has none."""
    archive = web.archive(url)
    name = next((name for name in archive.members if name.endswith("crt/host_config.h")), None)
    return archive.read(name).decode("utf-8", "replace") if name else None


def listed() -> dict[str, list[tuple[str, str]]]:
    """By toolkit: the packages that carry the header, oldest first, each with the address of its wheel for Linux."""
    found: dict[str, dict[Version, tuple[str, str]]] = {}
    for package in PACKAGES:
        for name, url, _ in web.wheels(package):
            _, version, _, tags = parse_wheel_filename(name)
            if any(re.fullmatch(r"manylinux.*_x86_64", tag.platform) for tag in tags):
                cuda = f"{version.major}.{version.minor}"
                found.setdefault(cuda, {})[version] = (f"{package}=={version}", url)
    return {cuda: [versions[one] for one in sorted(versions)] for cuda, versions in found.items()}


def observe() -> dict[str, list[dict[str, Any]]]:
    stated = msgspec.toml.decode(STATED.read_bytes())
    rows: dict[str, dict[str, Any]] = {}
    for cuda, packages in listed().items():
        header = header_of(packages[-1][1])
        if header:
            print(f"CUDA {cuda} ({packages[-1][0]})", file=sys.stderr, flush=True)
            rows[cuda] = {"cuda": cuda, **limits(header), "packages": [pin for pin, _ in packages], "note": None}
            rows[cuda] |= {"source": SOURCE, "observed_at": table.today(), "evidence": "binary"}
    table.nothing_read("host_compilers", len(rows))
    for one in stated["cuda"]:
        print(f"UNVERIFIED: CUDA {one['cuda']} is read from {one['source']}", file=sys.stderr)
        rows.setdefault(one["cuda"], {name: one.get(name) for name in FIELDS} | {"packages": []})
    print("UNVERIFIED: the numbers of Visual Studio are Microsoft's, as a person read them", file=sys.stderr)
    return {
        "cuda": [rows[cuda] for cuda in sorted(rows, key=Version)],
        "toolsets": [{name: one.get(name) for name in TOOLSET} for one in stated["toolsets"]],
        "stl": [{name: one.get(name) for name in STL} for one in stated["stl"]],
    }
