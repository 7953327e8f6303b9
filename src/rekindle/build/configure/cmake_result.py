"""What CMake really decided: its cache, the compilers it settled on, its summary, and the flags in build.ninja.

Needs Python alone: a build script carries this file along.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_ENTRY = re.compile(r"^([^#/][^:=]*):([A-Z]+)=(.*)$")
_SET = re.compile(r'^set\((CMAKE_\w+) "([^"]*)"\)', re.MULTILINE)
_SUMMARY = re.compile(r"^(?:\S+Z )?--\s+([A-Za-z][\w +./-]*?)\s*:\s?(.*)$")
_GENCODE = re.compile(r"(?:-gencode[= ;]|--generate-code=)\"?arch=compute_(\d{1,9}[af]?),code=\"?\[?([\w,]+)\]?")
_TARGET = re.compile(r"(?:sm|compute)_\d{2,3}[af]?")
_ARCH = re.compile(r"(?:^|\s)-arch=(sm_\d{2,3}[af]?)\b")


class CMakeResult(NamedTuple):
    """`summary` is what the project printed as `--   NAME : VALUE`; `gpu_flags` per group of CUDA files with one set
    of flags: the targets these flags name, as `sm_35`."""

    cache: dict[str, str]
    compilers: dict[str, str]
    summary: dict[str, str]
    gpu_flags: tuple[tuple[str, ...], ...] = ()
    cuda_objects: int = 0
    generator: str | None = None

    def get(self, name: str) -> str | None:
        """What the project printed beats the cache: it may have changed its mind after the cache was written."""
        return self.summary.get(name, self.cache.get(name))

    @property
    def one_core(self) -> str:
        """The MKL of one thread that FindMKL takes without a word when it does not find Intel's OpenMP."""
        names = ("mkl_sequential", "libiomp5md", "iomp5", "gomp")
        found = [self.cache.get(f"MKL_LIBRARIES_{name}_LIBRARY", "") for name in names]
        one, *threaded = ["" if path.endswith("NOTFOUND") else path for path in found]
        return "" if any(threaded) else one


def configured_in(build: Path, log: str = "") -> CMakeResult:
    """From a build folder, and the text that the configure run printed."""
    cache = parse_cache(_text(build / "CMakeCache.txt"))
    compilers: dict[str, str] = {}
    for file in sorted((build / "CMakeFiles").glob("*/CMake*Compiler.cmake")):
        compilers.update(dict(_SET.findall(_text(file))))
    flags, objects = parse_ninja(_text(build / "build.ninja"))
    return CMakeResult(
        cache=cache,
        compilers=compilers,
        summary=parse_summary(log),
        gpu_flags=flags,
        cuda_objects=objects,
        generator=cache.get("CMAKE_GENERATOR"),
    )


def parse_cache(text: str) -> dict[str, str]:
    matches = map(_ENTRY.match, text.splitlines())
    return {match[1].strip('"'): match[3] for match in matches if match}


def parse_summary(text: str) -> dict[str, str]:
    """`--   USE_CUDA              : ON`. The last word of a name counts: CMake may run twice."""
    matches = map(_SUMMARY.match, text.splitlines())
    return {match[1].strip(): match[2].strip() for match in matches if match}


def parse_ninja(text: str) -> tuple[tuple[tuple[str, ...], ...], int]:
    """The sets of GPU targets in the flags of CUDA compiles, and how many objects there are."""
    sets: dict[tuple[str, ...], None] = {}
    objects = 0
    inside = False
    for line in text.splitlines():
        if line.startswith("build "):
            inside = ": CUDA_COMPILER_" in line
            objects += inside
        elif (inside and line.lstrip().startswith("FLAGS =")) or (
            not inside and "nvcc" in line and ("-gencode" in line or "--generate-code" in line)
        ):
            sets.setdefault(gencode_targets(line))
    return tuple(sets), objects


def gencode_targets(flags: str) -> tuple[str, ...]:
    """`-gencode arch=compute_35,code=sm_35` and `--generate-code=arch=compute_50,code=[compute_50,sm_50]`."""
    found = set()
    for _, codes in _GENCODE.findall(flags):
        # `lto_90` and whatever else a flag may name is no code for a card.
        found |= {code for code in codes.split(",") if _TARGET.fullmatch(code)}
    for code in _ARCH.findall(flags):
        found |= {code, code.replace("sm_", "compute_")}
    return tuple(sorted(found))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
