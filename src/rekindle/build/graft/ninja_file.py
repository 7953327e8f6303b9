"""Which files of PyTorch's tree are its GPU half, and the Ninja file that compiles and links them with the wheel's own.

The macros are those that the wheel's CPU half was compiled with, by its own word. CMake is not asked: it would want
the CPU half's libraries too. The folders have kept their names from 2.0 to 2.11; what is listed by name is read from
the tree's own lists. A file that is forgotten shows as a name that nobody defines, or as an operator without kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.build.configure.request import BuildRequest
from rekindle.build.graft import across, platforms
from rekindle.build.graft.across import Exchange
from rekindle.build.graft.base import UnpackedBase, libraries
from rekindle.build.graft.platforms import Linkage, Linked
from rekindle.core import files
from rekindle.core.errors import BadInput
from rekindle.knowledge.builds import profiles
from rekindle.model.card import Capability, Target

_NVCC = (
    "-DCUDA_HAS_FP16=1", "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-DCUB_WRAPPED_NAMESPACE=at_cuda_detail",
    "--expt-relaxed-constexpr", "--expt-extended-lambda", "-Xfatbin", "-compress-all", "-Wno-deprecated-gpu-targets",
)  # fmt: skip
_DEFINED = (
    "USE_CUDA", "AT_PER_OPERATOR_HEADERS", "FMT_HEADER_ONLY=1", "ONNX_ML=1", "ONNX_NAMESPACE=onnx_torch",
    "USE_EXTERNAL_MZCRC", "MINIZ_DISABLE_ZIP_READER_CRC32_CHECKS",
)  # fmt: skip
BY_TREE = (
    ("caffe2/CMakeLists.txt", "USE_EXPERIMENTAL_CUDNN_V8_API"),
    ("cmake/public/cuda.cmake", "TORCH_CUDA_USE_NVTX3"),
    ("cmake/Dependencies.cmake", "TORCH_CUDA_USE_NVTX3"),
)
_MAIN = {"c10_cuda": "-DC10_CUDA_BUILD_MAIN_LIB", "torch_cuda": "-DTORCH_CUDA_BUILD_MAIN_LIB"}
_THIRD = ("fmt/include", "cudnn_frontend/include", "kineto/libkineto/include", "nlohmann/include", "gloo",
          "cutlass/include", "cutlass/tools/util/include", "NVTX/c/include", "fbgemm/include")  # fmt: skip
_HEADERS = ("nccl", "cudnn", "cusparselt", "cufile")


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """What the file is written from. `packages` is the folder of NVIDIA's packages that the base pins."""

    request: BuildRequest
    tree: Path
    build: Path
    base: Path
    unpacked: UnpackedBase
    packages: Path
    sources: GpuHalf

    @property
    def exchange(self) -> Exchange | None:
        return self.request.base.exchange if self.request.base else None

    @property
    def platform(self) -> Linkage:
        return platforms.of(self.request.system)

    def named(self, path: Path) -> str:
        """As the compiler is told of it, and so what the library says of where it was made."""
        inside = self.platform.near and any(path.is_relative_to(folder) for folder in (self.tree, self.build))
        return os.path.relpath(path, self.build) if inside else str(path)

    def in_packages(self, below: str) -> list[Path]:
        """Files or folders of NVIDIA's packages."""
        return sorted(
            [*self.packages.glob(f"*/{below}"), *self.packages.parent.glob(f"{platforms.CUSPARSELT}/{below}")]
        )


def write(half: Half, environ: Mapping[str, str]) -> None:
    """`build.ninja`, and the headers that differ from the base's."""
    platform = half.platform
    over = half.build / "over" / "ATen" / "cuda" / "CUDAConfig.h"
    files.write_text(over, config_header(half.base, half.request.gpu_targets))
    if half.exchange:
        files.write_text(half.build / across.SOURCE, across.bridge(base_headers(half)))
    needed = {name: _linked_for(half, name) for name in half.sources.files}
    lines = ["ninja_required_version = 1.5", "", *_rules(half, environ), ""]
    for library, names in half.sources.files.items():
        outputs = []
        for name in _heavy_first(half, names):
            output = f"o/{library}.dir/{name}{platform.object}"
            outputs.append(output)
            rule = "cuda" if name.endswith(".cu") else "cxx"
            own = platform.attention if rule == "cuda" and "/transformers/cuda/" in name else ""
            lines += [
                f"build {_path(output)}: {rule} {_path(half.named(_at(half.tree, half.build, name)))}",
                f"  flags = {' '.join(word for word in (_MAIN.get(library), own) if word)}",
            ]
        built = [each for each in half.sources.files if platform.library.format(each) in needed[library].needed]
        paths = _linked(half, needed[library], built)
        made, *beside = (f"lib/{name}" for name in platform.files(library))
        wanted = [f"lib/{platform.linked.format(each)}" for each in built]
        lines += [
            f"build {' | '.join([made, *beside])}: link {' '.join(map(_path, outputs))} | {' '.join(wanted)}",
            f"  libraries = {platform.line([*platform.before, *paths, *platform.after])}",
            f"  name = {platform.library.format(library)}",
            f"  import = {platform.linked.format(library)}",
            f"  way = {platform.line(_way(half, needed[library], paths))}",
        ]
    lines.append(f"default {' '.join(f'lib/{platform.library.format(library)}' for library in half.sources.files)}")
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
    return [f"-I{half.named(path)}" for path in (*places, root, root / "nvtx3") if path.is_dir()]


def common(half: Half) -> list[str]:
    """What every file is compiled with, CUDA or not."""
    platform = half.platform
    needed = _linked_in_base(half, "torch_cuda").needed
    found = [name for library, name in platform.by_library.items() if any(each.startswith(library) for each in needed)]
    levels = ["HAVE_AVX2_CPU_DEFINITION", "HAVE_AVX512_CPU_DEFINITION"] if half.request.arch == "x86_64" else []
    attention = ["USE_MEM_EFF_ATTENTION"] if half.sources.attention else []
    names = [*_DEFINED, *platform.definitions, *half.unpacked.definitions, *found,
             *from_tree(half.tree, (*platform.by_tree, *BY_TREE))]  # fmt: skip
    # The wheel does not tell where it was made.
    places = [] if platform.near else [f"-ffile-prefix-map={folder}/=" for folder in (half.tree, half.build)]
    return [*half.unpacked.flags, *places, *(f"-D{name}" for name in dict.fromkeys([*names, *levels, *attention]))]


def compiled(half: Half, first: Sequence[Path] = ()) -> list[str]:
    """The C++ compiler with what every file is compiled with. The headers of `first` come before all others."""
    own = from_tree(half.tree, half.platform.cxx_by_tree)
    words = [*half.platform.cxx, *own, *common(half), *(f"-I{path}" for path in first), *includes(half)]
    return [half.request.compiler.cxx, *dict.fromkeys(words)]


def from_tree(tree: Path, rows: Iterable[tuple[str, str]]) -> list[str]:
    """What the CMake files of this release have: file and word."""
    return [word for path, word in rows if word in _text(tree / path)]


def _rules(half: Half, environ: Mapping[str, str]) -> list[str]:
    request, platform = half.request, half.platform
    compiler = request.compiler
    assert request.cuda is not None
    first, second = (_launcher(environ, name) for name in ("CXX", "CUDA"))
    same = [*common(half), *includes(half)]
    definitions = [word for word in same if word.startswith(("-D", "-I"))]
    host = [*platform.host, *(word for word in same if not word.startswith(("-D", "-I")))]
    own = [word.format(host=compiler.cuda_host) for word in platform.nvcc]
    nvcc = [*second, request.cuda.nvcc, *own, "-std=c++17", "-O2", "-w", *definitions, *_NVCC,
            *gencode(request.gpu_targets), "-Xcompiler", ",".join(host)]  # fmt: skip
    return [
        *_compiles("cxx", platform, [*first, *compiled(half)], platform.compiled, platform.dependencies),
        *_compiles("cuda", platform, nvcc, platforms.LINUX.compiled, platforms.LINUX.dependencies),
        "rule link",
        f"  command = {platform.line([platform.program(compiler.cxx, compiler.cuda_host)])} {platform.link}",
        "  rspfile = $out.rsp",
        "  rspfile_content = $in",
        "  description = $out",
    ]


def _compiles(rule: str, platform: Linkage, words: list[str], tail: str, dependencies: str) -> list[str]:
    found = [f"rule {rule}", f"  command = {platform.line(words)} $flags {tail}", f"  deps = {dependencies}"]
    # cl says them, the others write them down.
    return [*found, *(["  depfile = $out.d"] if "$out.d" in tail else []), "  description = $out"]


def _launcher(environ: Mapping[str, str], language: str) -> list[str]:
    """What CMake would put before the compiler: the gate of the governor, a cache."""
    return [word for word in environ.get(f"CMAKE_{language}_COMPILER_LAUNCHER", "").split(";") if word]


def _linked_in_base(half: Half, library: str) -> Linked:
    path = libraries(half.base) / half.platform.library.format(library)
    if not path.is_file():
        raise BadInput(f"the base has no `{path.name}`", hint="name the official wheel of a release from 2.0 on")
    return platforms.linked(path)


def _linked_for(half: Half, library: str) -> Linked:
    """What a new library is linked with: as the base's own. The bridge is the kept halves' side, and `torch_cuda`
    brings it along."""
    if half.exchange and library == across.BRIDGE:
        found = _linked_in_base(half, across.NVRTC)
        runtime = base_headers(half).parent / "lib" / f"libcudart.so.{half.exchange.base.major}"
        return Linked(needed=(str(runtime),), way=found.way)
    found = _linked_in_base(half, library)
    if half.exchange and library == "torch_cuda":
        return msgspec.structs.replace(found, needed=(*found.needed, half.platform.library.format(across.BRIDGE)))
    return found


def base_headers(half: Half) -> Path:
    assert half.exchange is not None
    return half.packages / f"cu{half.exchange.base.major}" / "include"


def _way(half: Half, found: Linked, paths: Sequence[str]) -> tuple[str, ...]:
    """How a library finds what it is linked with. What was exchanged lies in other folders, and these come first: a
    library of either major may have one name."""
    if half.exchange is None:
        return found.way
    site = half.packages.parent
    folders = dict.fromkeys(path.parent for path in map(Path, paths) if path.is_relative_to(site))
    first = (f"-Wl,-rpath,$ORIGIN/../../{folder.relative_to(site).as_posix()}" for folder in folders)
    return (*found.way[:1], *first, *found.way[1:])


def _linked(half: Half, found: Linked, made: Sequence[str]) -> list[str]:
    """The very libraries that the base's own is linked with, by their files."""
    platform = half.platform
    paths = []
    for name in found.needed:
        kept = libraries(half.base) / name
        # What Windows and Visual C++ have is not in the base, and the linker finds it by itself.
        if platform.spared.match(name) or (platform.toolkit and not kept.is_file()):
            continue
        own = platform.plain(name)
        if own in made:
            paths.append(f"lib/{platform.linked.format(own)}")
            continue
        place = next(_places(half, name), None)
        if place is None:
            message = (
                f"`{name}`, which the base's GPU half is linked with, is neither in its packages nor in the toolkit"
            )
            raise BadInput(
                message, hint="install the whole toolkit; `rekindle build --clean` installs the packages anew"
            )
        paths.append(half.named(place))
    return paths


def _places(half: Half, name: str) -> Iterator[Path]:
    """Where the linker's file for a library may lie."""
    assert half.request.cuda is not None
    root = Path(half.request.cuda.root)
    for file in half.platform.to_link(name):
        folders = [libraries(half.base), *(root / folder for folder in half.platform.toolkit)]
        yield from (folder / file for folder in folders if (folder / file).is_file())
        if half.exchange and across.BRIDGE not in name:
            yield from _exchanged(half, file)
        yield from half.in_packages(f"{half.platform.packages}/{file}")


def driver(half: Half) -> Path:
    """What the toolkit has in place of the driver's library, to link with."""
    assert half.request.cuda is not None
    return Path(half.request.cuda.root) / across.DRIVER[1]


def _exchanged(half: Half, file: str) -> list[Path]:
    """The library of the other major for one of the base's, by its name before the numbers."""
    assert half.exchange is not None
    if file == across.DRIVER[0]:
        return [driver(half)]
    theirs = half.packages / f"cu{half.exchange.base.major}"
    stem = file.partition(".so")[0]
    return [path for path in half.in_packages(f"lib/{stem}.so.*") if not path.is_relative_to(theirs)]


def _heavy_first(half: Half, names: Sequence[str]) -> list[str]:
    """One file may take ten minutes: it must not be the last. CUTLASS's are the longest, then what registers all
    kernels, then the larger ones."""

    def weight(name: str) -> tuple[bool, bool, bool, int]:
        text = _at(half.tree, half.build, name).read_text(encoding="utf-8", errors="replace")
        kernels = name.endswith(".cu")
        return kernels and "cutlass/" in text, name.startswith(f"{GENERATED}/"), kernels, len(text)

    return sorted(names, key=weight, reverse=True)


def _path(path: str | Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


_ATEN = "aten/src/ATen"
_FOLDERS = ("cuda", "cuda/detail", "cuda/tunable", "cudnn", "native/cuda", "native/cudnn", "native/miopen",
            "native/nested/cuda", "native/quantized/cuda", "native/quantized/cudnn", "native/sparse/cuda",
            "native/transformers/cuda")  # fmt: skip
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


def sources(
    tree: Path, build: Path, cards: Iterable[Capability], platform: Linkage, exchange: Exchange | None = None
) -> GpuHalf:
    """Attention's files are large: they are compiled only where one of the cards can use them."""
    attention = profiles.serves("USE_MEM_EFF_ATTENTION", cards) and (tree / _ATEN / _EFFICIENT[1]).is_dir()
    folders = (*_FOLDERS, *(_EFFICIENT if attention else ()))
    aten = [f"{_ATEN}/{folder}/{path.name}" for folder in folders for path in _in(tree / _ATEN / folder)]
    listed = [name for each in platform.lists for name in _list(tree, each)]
    made = [f"{GENERATED}/{path.name}" for path in _in(build / GENERATED) if _is_generated(path.name)]
    if not made:
        raise BadInput("torchgen made no sources for CUDA", hint="see the log of the step `configure`")
    every = dict.fromkeys([*aten, *listed, *platform.alone, *made])
    linalg = [f"{_ATEN}/native/cuda/linalg/{path.name}" for path in _in(tree / _ATEN / "native/cuda/linalg")]
    there = [name for name in every if name not in _LEFT and _at(tree, build, name).is_file()]
    c10 = [f"c10/cuda/{name}" for name in _c10(tree)]
    found = {"c10_cuda": tuple(c10), "torch_cuda": tuple(there if platform.split else dict.fromkeys([*there, *linalg]))}
    if platform.split and linalg:
        found["torch_cuda_linalg"] = tuple(linalg)
    if exchange:
        found[across.NVRTC] = (across.NVRTC_SOURCE,)
    lost = [name for names in found.values() for name in names if not _at(tree, build, name).is_file()]
    lost += [name for name in listed if name not in _LEFT and not _at(tree, build, name).is_file()]
    if lost:
        raise BadInput(f"the source lacks `{lost[0]}`, which its own lists name", hint="bring the source again")
    left = tuple(why for name, why in _LEFT.items() if name in listed and (tree / name).is_file())
    if exchange:
        found[across.BRIDGE] = (across.SOURCE,)
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
