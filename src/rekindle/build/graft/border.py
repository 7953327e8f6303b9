"""The border between the halves: every name that one takes from the other, and every kernel that is registered."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rekindle.build.graft.base import libraries, library_name
from rekindle.build.graft.ninja_file import BESIDE, Half, common, includes
from rekindle.core import files, run
from rekindle.core.errors import StepFailed
from rekindle.core.findings import Finding, failed, passed, unverified
from rekindle.core.python import ask
from rekindle.formats import elf
from rekindle.formats.access import File
from rekindle.formats.elf import Symbols
from rekindle.wheels.inspect import grafted

_MARK = "rekindle-graft: "
ASK = """
import json, torch
cuda = lambda text: [line for line in text.splitlines() if "CUDA" in line.split(":")[0]]
c = torch._C
names = sorted(c._dispatch_get_all_op_names())
print("MARK" + json.dumps({"registered": {name: cuda(c._dispatch_dump(name)) for name in names},
                           "computed": {name: cuda(c._dispatch_dump_table(name)) for name in names}}))
""".replace("MARK", _MARK)
# Where a kernel was registered, without the folder that it was compiled in.
PLACE = re.compile(r"registered at (?:\S*/)?((?:aten|c10|torch)/\S+)")
_LINE = re.compile(r"(registered at \S+):\d+")


def check(half: Half, new: Mapping[str, Path]) -> list[Finding]:
    """Names, before anything runs. `new` are the libraries that were made."""
    lib = libraries(half.base)
    replaced = {library_name(name): path for name, path in new.items()}
    inside = [*lib.glob("*.so*"), *half.base.glob("torch/*.so"), *half.base.glob("functorch/*.so")]
    kept = {path.name: _symbols(path) for path in inside if path.name not in replaced}
    old = {path.name: _symbols(path) for path in lib.glob("*.so") if path.name in replaced}
    made = {name: _symbols(path) for name, path in replaced.items()}
    needed = {name for path in new.values() for name in elf.of(path).needed}
    beside = [path for name in sorted(needed) for path in half.in_packages(f"lib/{name}")]
    packages = frozenset().union(*(_symbols(path).defined for path in beside))
    return [grafted.taken(kept, old, made), grafted.wanted(kept, old, made, packages)]


def registrations(half: Half, new: Mapping[str, Path], python: str) -> list[Finding]:
    """The dispatcher's entries for CUDA, of the base and of the base with the new half, asked without a GPU."""
    one = _ask(half.base, half.packages, python)
    other = _ask(overlay(half, new), half.packages, python)
    if isinstance(one, str):
        text = f"the base itself could not be imported here, so its kernels could not be counted: {one}"
        return [unverified("graft-kernels", text)]
    if isinstance(other, str):
        return [failed("graft-kernels", f"the base can be imported, with the new GPU half it cannot: {other}")]
    found = sorted(differences(one, other))
    count = sum(len(entry) for entry in one["registered"].values())
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        text = f"the dispatcher has another entry for `{found[0]}`{more} with the new GPU half"
        return [failed("graft-kernels", text, why="an operator would have no kernel")]
    text = f"the dispatcher has the same {count} entries for CUDA with the base and with the new GPU half"
    return [passed("graft-kernels", text)]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterable[str]:
    """Operators whose entries differ in more than the folder and the line of their source."""
    for table in ("registered", "computed"):
        for name in {*one[table], *other[table]}:
            first, second = (_placeless(side[table].get(name)) for side in (one, other))
            if first != second:
                yield name


def overlay(half: Half, new: Mapping[str, Path]) -> Path:
    """The base once more, its files shared, with the new libraries in their places."""
    folder = half.build / "new"
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(half.base, folder, copy_function=_link, symlinks=True)
    for name, path in new.items():
        target = libraries(folder) / library_name(name)
        target.unlink(missing_ok=True)
        _link(str(path), str(target))
    return folder


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _ask(folder: Path, packages: Path, python: str) -> dict[str, Any] | str:
    for name in ("nvidia", BESIDE):
        if (packages.parent / name).is_dir() and not (folder / name).exists():
            (folder / name).symlink_to(packages.parent / name, target_is_directory=True)
    env = {**os.environ, "PYTHONPATH": str(folder), "LD_BIND_NOW": "1"}
    said = ask(python, "-c", ASK, env=env, timeout=600)
    line = next((line for line in said.out.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        return (said.err.strip().splitlines() or [f"exited with code {said.code}"])[-1][:300]
    answer: dict[str, Any] = json.loads(line[len(_MARK) :])
    return answer


def _placeless(entry: list[str] | None) -> list[str] | None:
    return None if entry is None else [_LINE.sub(r"\1", PLACE.sub(r"registered at \1", line)) for line in entry]


def _symbols(path: Path) -> Symbols:
    with File(path) as source:
        return elf.symbols(source)


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


def layouts(half: Half) -> tuple[Finding, ...]:
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
