"""Structures that both halves touch have the same size and places, with the base's CUDA and with the toolkit's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rekindle.build.graft.ninja_file import Half, common, includes
from rekindle.core import files, run
from rekindle.core.errors import StepFailed
from rekindle.core.findings import Finding, failed, passed, unverified

_ASKED = (
    "sizeof(cudaDeviceProp)", "offsetof(cudaDeviceProp, multiProcessorCount)", "offsetof(cudaDeviceProp, major)",
    "sizeof(at::cuda::NVRTC)", "sizeof(c10::cuda::CUDAStream)", "sizeof(at::CUDAGeneratorImpl)",
    "sizeof(c10::cuda::CUDACachingAllocator::CUDAAllocator)",
)  # fmt: skip
_NCCL = ("sizeof(c10d::ProcessGroupNCCL)", "sizeof(c10d::ProcessGroupNCCL::Options)")
_HEADERS = ("cstddef", "cuda_runtime.h", "ATen/cuda/nvrtc_stub/ATenNVRTC.h", "c10/cuda/CUDACachingAllocator.h",
            "c10/cuda/CUDAStream.h", "ATen/cuda/CUDAGeneratorImpl.h")  # fmt: skip
_NCCL_HEADER = "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
_TABLE = re.compile(r"^rekindle_layouts:\n((?:\s+\.(?:quad|xword)\s+\d+\n)+)", re.MULTILINE)


def check(half: Half) -> tuple[Finding, ...]:
    """The CPU and Python halves were compiled with the base's CUDA, the new half is with the toolkit's."""
    theirs = sorted({path.parent for path in half.in_packages("include/*.h")})
    if not any((folder / "cuda_runtime.h").is_file() for folder in theirs):
        text = "the base's own CUDA headers are in none of its packages: the layouts could not be compared"
        return (unverified("graft-layouts", text),)
    asked = [*_ASKED, *(_NCCL if "-DUSE_C10D_NCCL" in common(half) else ())]
    with files.scratch("layouts") as scratch:
        ours = _numbers(half, scratch, asked, ())
        base = _numbers(half, scratch, asked, theirs)
    rows = zip(asked, base, ours, strict=True)
    different = [f"`{name}` is {one} in the base and {other} here" for name, one, other in rows if one != other]
    if different:
        text = different[0] + (f", and {len(different) - 1} more differ" if len(different) > 1 else "")
        why = "both halves use it: one would read the other's memory wrongly"
        return (failed("graft-layouts", text, why=why),)
    text = f"{len(asked)} sizes and places of structures are the same with the base's CUDA and with the toolkit's"
    return (passed("graft-layouts", text),)


def _numbers(half: Half, scratch: Path, asked: Sequence[str], first: Sequence[Path]) -> list[int]:
    """By the compiler's own word: it writes a table of constants, and nothing is linked or run."""
    headers = [*_HEADERS, *((_NCCL_HEADER,) if _NCCL[0] in asked else ())]
    source, made = scratch / "layouts.cpp", scratch / "layouts.s"
    text = "".join(f"#include <{name}>\n" for name in headers)
    text += f'extern "C" {{ extern const unsigned long rekindle_layouts[] = {{{", ".join(asked)}}}; }}\n'
    source.write_text(text, encoding="utf-8")
    words = [half.request.compiler.cxx, "-std=c++17", "-w", *common(half), *(f"-I{path}" for path in first)]
    said = run.call([*words, *includes(half), "-S", "-o", str(made), str(source)], timeout=900)
    table = _TABLE.search(made.read_text(encoding="utf-8", errors="replace")) if said.ok else None
    if table is None:
        why = next((line for line in said.err.splitlines() if "error" in line), said.err.strip()[:200])
        raise StepFailed(f"the layouts of both halves could not be compared: {why}", hint="see the headers it names")
    return [int(number) for number in re.findall(r"\d+", table[1])]
