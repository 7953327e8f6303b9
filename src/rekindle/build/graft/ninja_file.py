"""Which files of PyTorch's tree are its GPU half, and the Ninja file that compiles and links them with the wheel's own.

The macros are those that the wheel's CPU half was compiled with, by its own word. CMake is not asked: it would want
the CPU half's libraries too. The folders have kept their names from 2.0 to 2.11; what is listed by name is read from
the tree's own lists. A file that is forgotten shows as a name that nobody defines, or as an operator without kernel.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.build.configure.request import BuildRequest
from rekindle.build.graft.base import UnpackedBase, libraries, library_name
from rekindle.core import files
from rekindle.core.errors import BadInput
from rekindle.formats import elf
from rekindle.formats.elf import Elf
from rekindle.knowledge.builds import profiles
from rekindle.knowledge.gpu.capability import Capability, Target
from rekindle.wheels.inspect.grafted import GPU_HALF

_NVCC = (
    "-DCUDA_HAS_FP16=1", "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-DCUB_WRAPPED_NAMESPACE=at_cuda_detail",
    "--expt-relaxed-constexpr", "--expt-extended-lambda", "-Xfatbin", "-compress-all", "-Wno-deprecated-gpu-targets",
)  # fmt: skip
_DEFINED = (
    "USE_CUDA", "AT_PER_OPERATOR_HEADERS", "BUILD_LAZY_CUDA_LINALG", "FMT_HEADER_ONLY=1", "ONNX_ML=1",
    "ONNX_NAMESPACE=onnx_torch", "USE_EXTERNAL_MZCRC", "MINIZ_DISABLE_ZIP_READER_CRC32_CHECKS", "_FILE_OFFSET_BITS=64",
)  # fmt: skip
# What CMake defines for a library that it found; the base has found it when its GPU half needs it.
_BY_LIBRARY = {"libnccl.so": "USE_NCCL", "libcusparseLt.so": "USE_CUSPARSELT", "libcufile.so": "USE_CUFILE"}
_BY_TREE = {
    "c10/cuda/CMakeLists.txt": "PYTORCH_C10_DRIVER_API_SUPPORTED",
    "caffe2/CMakeLists.txt": "USE_EXPERIMENTAL_CUDNN_V8_API",
    "cmake/public/cuda.cmake": "TORCH_CUDA_USE_NVTX3",
}
_MAIN = {"c10_cuda": "-DC10_CUDA_BUILD_MAIN_LIB", "torch_cuda": "-DTORCH_CUDA_BUILD_MAIN_LIB", "torch_cuda_linalg": ""}
_THIRD = ("fmt/include", "cudnn_frontend/include", "kineto/libkineto/include", "nlohmann/include", "gloo",
          "cutlass/include", "cutlass/tools/util/include", "NVTX/c/include", "fbgemm/include")  # fmt: skip
_HEADERS = ("nccl", "cudnn", "cusparselt", "cufile")
BESIDE = "cusparselt"
# glibc's and the compiler's: the compiler adds those that it needs itself.
_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so\.\d+\Z")


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """What the file is written from. `packages` is the folder of NVIDIA's packages that the base pins."""

    request: BuildRequest
    tree: Path
    build: Path
    base: Path
    unpacked: UnpackedBase
    packages: Path
    sources: GpuHalf

    def in_packages(self, below: str) -> list[Path]:
        """Files or folders of NVIDIA's packages. cuSPARSELt's lay beside the others before 0.7."""
        return sorted([*self.packages.glob(f"*/{below}"), *self.packages.parent.glob(f"{BESIDE}/{below}")])


def write(half: Half, environ: Mapping[str, str]) -> None:
    """`build.ninja`, and the headers that differ from the base's."""
    over = half.build / "over" / "ATen" / "cuda" / "CUDAConfig.h"
    files.write_text(over, config_header(half.base, half.request.gpu_targets))
    needed = {name: _elf(half, name) for name in half.sources.files}
    lines = ["ninja_required_version = 1.5", "", *_rules(half, environ), ""]
    for library, names in half.sources.files.items():
        outputs = []
        for name in _heavy_first(half, names):
            output = f"o/{library}.dir/{name}.o"
            outputs.append(output)
            rule = "cuda" if name.endswith(".cu") else "cxx"
            lines += [
                f"build {_path(output)}: {rule} {_path(_at(half.tree, half.build, name))}",
                f"  flags = {_MAIN[library]}",
            ]
        made = [own for own in GPU_HALF if own in half.sources.files and library_name(own) in needed[library].needed]
        lines += [
            f"build {_file(library)}: link {' '.join(map(_path, outputs))} | {' '.join(_file(own) for own in made)}",
            f"  libraries = {_words(_linked(half, needed[library], made))}",
            f"  name = {library_name(library)}",
            f"  way = {_words(_run_path(needed[library]))}",
        ]
    lines.append(f"default {' '.join(_file(library) for library in half.sources.files)}")
    files.write_text(half.build / "build.ninja", "\n".join(lines) + "\n")


def config_header(base: Path, targets: Iterable[Target]) -> str:
    """The base's `CUDAConfig.h` with the new architectures, and without MAGMA, whose kernels were for the old ones."""
    text = (base / "torch" / "include" / "ATen" / "cuda" / "CUDAConfig.h").read_text(encoding="utf-8")
    text = re.sub(r"(#define AT_MAGMA_ENABLED\(\)) 1", r"\1 0", text)
    flags = ";".join(gencode(targets))
    return re.sub(r'(#define NVCC_FLAGS_EXTRA) ".*"', lambda found: f'{found[1]} "{flags}"', text)


def gencode(targets: Iterable[Target]) -> list[str]:
    return [word for target in targets for word in ("-gencode", target.gencode)]


def architectures(targets: Iterable[Target]) -> str:
    """As `torch.cuda.get_arch_list()` names them."""
    return " ".join(map(str, targets))


def includes(half: Half) -> list[str]:
    base = half.base / "torch" / "include"
    third = half.tree / "third_party"
    places = [
        half.build / "over", half.build / "gen" / "aten" / "src", half.tree / "aten" / "src", half.tree,
        half.tree / "torch" / "csrc" / "api" / "include", base, base / "torch" / "csrc" / "api" / "include",
        *(third / name for name in _THIRD),
        *(path for path in half.in_packages("include") if path.parent.name in _HEADERS),
    ]  # fmt: skip
    assert half.request.cuda is not None
    root = Path(half.request.cuda.root) / "include"
    return [f"-I{path}" for path in (*places, root, root / "nvtx3") if path.is_dir()]


def common(half: Half) -> list[str]:
    """What every file is compiled with, CUDA or not."""
    needed = _elf(half, "torch_cuda").needed
    found = [name for library, name in _BY_LIBRARY.items() if any(each.startswith(library) for each in needed)]
    levels = ["HAVE_AVX2_CPU_DEFINITION", "HAVE_AVX512_CPU_DEFINITION"] if half.request.arch == "x86_64" else []
    attention = ["USE_MEM_EFF_ATTENTION"] if half.sources.attention else []
    names = [*_DEFINED, *half.unpacked.definitions, *found, *from_tree(half.tree), *levels, *attention]
    # The wheel does not tell where it was made.
    places = [f"-ffile-prefix-map={folder}/=" for folder in (half.tree, half.build)]
    return [*half.unpacked.flags, *places, *(f"-D{name}" for name in dict.fromkeys(names))]


def from_tree(tree: Path) -> list[str]:
    """What the CMake files of this release define for every file."""
    texts = {name: (tree / path).read_text(encoding="utf-8", errors="replace") for path, name in _BY_TREE.items()}
    return [name for name, text in texts.items() if name in text]


def _rules(half: Half, environ: Mapping[str, str]) -> list[str]:
    request = half.request
    assert request.cuda is not None
    first, second = (_launcher(environ, name) for name in ("CXX", "CUDA"))
    same = [*common(half), *includes(half)]
    definitions = [word for word in same if not word.startswith("-f")]
    host = ",".join(word for word in same if word.startswith("-f"))
    nvcc = [*second, request.cuda.nvcc, "-ccbin", request.compiler.cuda_host, "-std=c++17", "-O2", "-w", *definitions,
            *_NVCC, *gencode(request.gpu_targets), "-Xcompiler", f"-fPIC,{host}" if host else "-fPIC"]  # fmt: skip
    cxx = [*first, request.compiler.cxx, "-std=c++17", "-O2", "-w", "-fPIC", *same]
    # Without the names that nvcc draws by lot: two builds in one folder are then equal. A name that nobody has stops
    # the link, not somebody's `import torch`.
    link = [request.compiler.cxx, "-shared", "-Wl,-s", "-Wl,-z,defs", "-o"]
    return [
        *_compiles("cxx", cxx),
        *_compiles("cuda", nvcc),
        "rule link",
        f"  command = {_words(link)} $out @$out.rsp $way $libraries -Wl,-soname,$name",
        "  rspfile = $out.rsp",
        "  rspfile_content = $in",
        "  description = $out",
    ]


def _compiles(rule: str, words: list[str]) -> list[str]:
    command = f"  command = {_words(words)} $flags -MD -MF $out.d -c $in -o $out"
    return [f"rule {rule}", command, "  depfile = $out.d", "  deps = gcc", "  description = $out"]


def _launcher(environ: Mapping[str, str], language: str) -> list[str]:
    """What CMake would put before the compiler: the gate of the governor, a cache."""
    return [word for word in environ.get(f"CMAKE_{language}_COMPILER_LAUNCHER", "").split(";") if word]


def _elf(half: Half, library: str) -> Elf:
    path = libraries(half.base) / library_name(library)
    if not path.is_file():
        raise BadInput(f"the base has no `{path.name}`", hint="name the official wheel of a release from 2.0 on")
    return elf.of(path)


def _linked(half: Half, found: Elf, made: Sequence[str]) -> list[str]:
    """The very libraries that the base's own is linked with, by their files."""
    paths = []
    for name in found.needed:
        if _SYSTEM.match(name):
            continue
        own = name.removeprefix("lib").removesuffix(".so")
        if own in made:
            paths.append(_file(own))
            continue
        kept = libraries(half.base) / name
        place = kept if kept.is_file() else next(iter(half.in_packages(f"lib/{name}")), None)
        if place is None:
            message = f"`{name}`, which the base's GPU half is linked with, is in none of its packages"
            raise BadInput(message, hint="`rekindle build --clean` installs them anew")
        paths.append(str(place))
    return ["-Wl,--no-as-needed", *paths, "-Wl,--as-needed", "-ldl", "-lpthread", "-lrt"]


def _run_path(found: Elf) -> list[str]:
    """As in the base: NVIDIA's packages beside torch."""
    ways = found.rpath or found.runpath
    tags = "--disable-new-dtags" if found.rpath else "--enable-new-dtags"
    return [f"-Wl,{tags}", *(f"-Wl,-rpath,{way}" for way in ways)]


def _heavy_first(half: Half, names: Sequence[str]) -> list[str]:
    """One file may take ten minutes: it must not be the last. CUTLASS's are the longest, then the larger ones."""

    def weight(name: str) -> tuple[bool, bool, int]:
        text = _at(half.tree, half.build, name).read_text(encoding="utf-8", errors="replace")
        return name.endswith(".cu"), "cutlass/" in text, len(text)

    return sorted(names, key=weight, reverse=True)


def _file(library: str) -> str:
    return f"lib/{library_name(library)}"


def _words(words: Iterable[str]) -> str:
    """For Ninja, whose commands a shell reads."""
    line = subprocess.list2cmdline(list(words)) if os.name == "nt" else shlex.join(words)
    return line.replace("$", "$$")


def _path(path: str | Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


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
    there = [name for name in every if name not in _LEFT and _at(tree, build, name).is_file()]
    c10 = [f"c10/cuda/{name}" for name in _c10(tree)]
    found = {"c10_cuda": tuple(c10), "torch_cuda": tuple(there if linux else [*there, *linalg])}
    if linux and linalg:
        found["torch_cuda_linalg"] = tuple(linalg)
    lost = [name for names in found.values() for name in names if not _at(tree, build, name).is_file()]
    lost += [name for name in listed if name not in _LEFT and not _at(tree, build, name).is_file()]
    if lost:
        raise BadInput(f"the source lacks `{lost[0]}`, which its own lists name", hint="bring the source again")
    left = tuple(why for name, why in _LEFT.items() if (tree / name).is_file())
    return GpuHalf(files=found, left=left, attention=attention)


def _at(tree: Path, build: Path, name: str) -> Path:
    return (build if name.startswith("gen/") else tree) / name


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
