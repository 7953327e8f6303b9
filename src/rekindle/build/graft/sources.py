"""Which files of PyTorch's tree are its GPU half.

The folders have kept their names from 2.0 to 2.11; what is listed by name is read from the tree's own lists. Nothing is
trusted here: a file that is forgotten shows as a name that nobody defines, or as an operator without its kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from rekindle.core.errors import BadInput
from rekindle.knowledge.builds import profiles
from rekindle.knowledge.gpu.capability import Capability

_ATEN = "aten/src/ATen"
_FOLDERS = ("cuda", "cuda/detail", "cuda/tunable", "cudnn", "native/cuda", "native/cudnn", "native/miopen",
            "native/nested/cuda", "native/quantized/cuda", "native/quantized/cudnn", "native/sparse/cuda",
            "native/transformers/cuda")  # fmt: skip
_LISTS = ("aten_cuda_cu_source_list", "aten_cuda_with_sort_by_key_source_list",
          "aten_cuda_cu_with_sort_by_key_source_list", "libtorch_cuda_core_sources",
          "libtorch_cuda_distributed_base_sources", "libtorch_cuda_distributed_extra_sources")  # fmt: skip
_ALONE = ("torch/csrc/cuda/nccl.cpp", "torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.cpp")
_LEFT = {
    "torch/csrc/distributed/c10d/ProcessGroupGlooCuda.cpp": "gloo's transport of tensors on the GPU",
    "torch/csrc/distributed/rpc/tensorpipe_cuda.cpp": "tensorpipe's CUDA channel",
}
"""They want libraries that the wheel has inside its CPU half, without their names."""
_EFFICIENT = ("native/transformers/cuda/mem_eff_attention", "native/transformers/cuda/mem_eff_attention/kernels")
SUBMODULES = tuple(
    f"third_party/{name}"
    for name in ("cutlass", "fbgemm", "fmt", "cudnn_frontend", "kineto", "gloo", "nlohmann", "NVTX")
)
"""Those whose headers the GPU half includes."""
GENERATED = "gen/aten/src/ATen"
"""Torchgen's sources, below the build's folder."""


class GpuHalf(msgspec.Struct, frozen=True, kw_only=True):
    """Files by library. Those of the tree are relative to it, generated ones begin with `gen/`. `left` says what is
    not compiled, `attention` whether memory-efficient attention is."""

    files: dict[str, tuple[str, ...]]
    left: tuple[str, ...]
    attention: bool = False


def sources(tree: Path, build: Path, cards: Iterable[Capability], *, linux: bool) -> GpuHalf:
    """Attention's files are large: they are compiled only where one of the cards can use them."""
    attention = profiles.serves("USE_MEM_EFF_ATTENTION", cards) and (tree / _ATEN / _EFFICIENT[1]).is_dir()
    folders = (*_FOLDERS, *(_EFFICIENT if attention else ()))
    aten = [f"{_ATEN}/{folder}/{path.name}" for folder in folders for path in _in(tree / _ATEN / folder)]
    listed = [name for each in _LISTS for name in _list(tree, each)]
    made = [f"{GENERATED}/{path.name}" for path in _in(build / GENERATED) if _is_generated(path.name)]
    if not made:
        raise BadInput("torchgen made no sources for CUDA", hint="see the log of the step `configure`")
    every = dict.fromkeys([*aten, *listed, *_ALONE, *made])
    linalg = [f"{_ATEN}/native/cuda/linalg/{path.name}" for path in _in(tree / _ATEN / "native/cuda/linalg")]
    there = [name for name in every if name not in _LEFT and _exists(tree, build, name)]
    c10 = [f"c10/cuda/{name}" for name in _c10(tree)]
    found = {"c10_cuda": tuple(c10), "torch_cuda": tuple(there if linux else [*there, *linalg])}
    if linux and linalg:
        found["torch_cuda_linalg"] = tuple(linalg)
    lost = [name for names in found.values() for name in names if not _exists(tree, build, name)]
    lost += [name for name in listed if name not in _LEFT and not _exists(tree, build, name)]
    if lost:
        raise BadInput(f"the source lacks `{lost[0]}`, which its own lists name", hint="bring the source again")
    left = tuple(why for name, why in _LEFT.items() if (tree / name).is_file())
    return GpuHalf(files=found, left=left, attention=attention)


def _exists(tree: Path, build: Path, name: str) -> bool:
    return ((build if name.startswith("gen/") else tree) / name).is_file()


def _in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in (".cu", ".cpp"))


def _is_generated(name: str) -> bool:
    """`RegisterCUDA_0.cpp`, `UfuncCUDA_add.cu`; the `…Everything.cpp` are the same once more in one file."""
    return "CUDA" in name and not name.endswith("Everything.cpp")


def _list(tree: Path, name: str) -> list[str]:
    text = _text(tree / "build_variables.bzl")
    found = re.search(rf"^{name} = \[(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    return re.findall(r'"([^"]+)"', re.sub(r"#.*", "", found[1])) if found else []


def _c10(tree: Path) -> list[str]:
    found = re.search(r"set\(C10_CUDA_SRCS\s+([^)]*)\)", _text(tree / "c10" / "cuda" / "CMakeLists.txt"))
    if found is None:
        raise BadInput(f"`{tree}` is not a source of PyTorch 2.0 or newer", hint="name the tree of the base's commit")
    return [word for word in re.sub(r"#.*", "", found[1]).split() if word.endswith((".cpp", ".cu"))]


def _text(path: Path) -> str:
    if not path.is_file():
        raise BadInput(f"the source lacks `{path.name}`", hint="name the complete tree of the base's commit")
    return path.read_text(encoding="utf-8", errors="replace")
