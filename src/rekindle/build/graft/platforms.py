"""What differs between Linux and Windows in a graft: a value here, and nothing of it elsewhere."""

from __future__ import annotations

import ntpath
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from rekindle.core.command import without_shell
from rekindle.formats import elf, pe
from rekindle.formats.access import File

_BASE_LIST = (
    "aten_cuda_cu_source_list", "aten_cuda_with_sort_by_key_source_list", "aten_cuda_cu_with_sort_by_key_source_list",
    "libtorch_cuda_core_sources", "libtorch_cuda_distributed_base_sources",
)  # fmt: skip
CUSPARSELT = "cusparselt"
"""Its package lay beside NVIDIA's others before 0.7."""
_SHIM = "torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.cpp"


class Linkage(msgspec.Struct, frozen=True, kw_only=True):
    """`{}` stands for a library's plain name, `$` words are Ninja's.

    `library` is what is loaded, `linked` what a linker takes for it; `said` is how the CPU half tells what it was
    compiled with, `kept` the words of that which hold for the GPU half; `by_tree` are macros of a release whose CMake
    file names them, `cxx_by_tree` words for the C++ compiler; `spared` are libraries that need not be linked.
    """

    library: str
    linked: str
    said: re.Pattern[bytes]
    kept: tuple[str, ...]
    definitions: tuple[str, ...]
    by_library: dict[str, str]
    by_tree: tuple[tuple[str, str], ...]
    cxx_by_tree: tuple[tuple[str, str], ...] = ()
    lists: tuple[str, ...]
    alone: tuple[str, ...]
    cxx: tuple[str, ...]
    host: tuple[str, ...]
    nvcc: tuple[str, ...]
    attention: str = ""
    """Of the files of attention alone."""
    object: str
    compiled: str
    dependencies: str
    link: str
    linker: str | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    spared: re.Pattern[str]
    packages: str
    """Where NVIDIA's packages keep what is linked."""
    beside: tuple[str, ...] = ()
    """Folders that a torch looks for beside its own."""
    toolkit: tuple[str, ...] = ()
    untried: str | None = None
    """What nobody has done there yet."""
    split: bool = False
    """The linear algebra is a library of its own."""
    near: bool = False
    """Files are named from the build's folder, so that the wheel does not tell where it was made."""

    def files(self, name: str) -> tuple[str, ...]:
        """What is made of a library: on Windows also what others link with."""
        return tuple(dict.fromkeys((self.library.format(name), self.linked.format(name))))

    def plain(self, file: str) -> str:
        before, after = self.library.split("{}")
        return file.removeprefix(before).removesuffix(after)

    def to_link(self, file: str) -> tuple[str, ...]:
        """Names of the file that a linker takes for that library: `cublas.lib` for `cublas64_11.dll`."""
        if self.linked == self.library:
            return (file,)
        plain = self.plain(file)
        shorter = re.sub(r"(?:64)?_[\d._]+\Z", "", plain)
        return tuple(dict.fromkeys(self.linked.format(each) for each in (plain, shorter)))

    def one(self, source: str, made: str) -> list[str]:
        """The words that compile one file, outside Ninja."""
        return ["/c", source, f"/Fo{made}"] if self.linker else ["-c", source, "-o", made]

    def program(self, cxx: str, cuda_host: str) -> str:
        """What links: MSVC's own `link` lies beside its `cl`, and another may come first on PATH."""
        return ntpath.join(ntpath.dirname(cuda_host), self.linker) if self.linker else cxx

    def line(self, words: Iterable[str]) -> str:
        """As the commands of a Ninja file are read there: by a shell, or by the program itself."""
        return without_shell(words, windows=bool(self.linker)).replace("$", "$$")


class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """What a library of the base is linked with, and the linker's words for how it finds that."""

    needed: tuple[str, ...]
    way: tuple[str, ...]


def linked(path: Path) -> Linked:
    with File(path) as source:
        if source.read(0, 2) == pe.MAGIC:
            image = pe.read(source)
            later = (*(f"/DELAYLOAD:{name}" for name in image.delayed), "delayimp.lib") if image.delayed else ()
            return Linked(needed=(*image.imports, *image.delayed), way=later)
        found = elf.read(source)
    ways = found.rpath or found.runpath
    tags = "--disable-new-dtags" if found.rpath else "--enable-new-dtags"
    return Linked(needed=found.needed, way=(f"-Wl,{tags}", *(f"-Wl,-rpath,{way}" for way in ways)))


_SAID_BY_CL = ("/GR", "/EHsc", "/bigobj", "/FS", "/utf-8", "/Zc:__cplusplus")
LINUX = Linkage(
    library="lib{}.so",
    linked="lib{}.so",
    said=re.compile(rb"(?<=\x00)[^\x00]*-fvisibility-inlines-hidden [^\x00]*(?=\x00)"),
    kept=("-D", "-fabi-version=", "-fvisibility-inlines-hidden", "-fno-math-errno", "-fno-trapping-math"),
    definitions=("BUILD_LAZY_CUDA_LINALG", "_FILE_OFFSET_BITS=64"),
    # What CMake defines for a library that it found; the base has found it when its GPU half needs it.
    by_library={"libnccl.so": "USE_NCCL", "libcusparseLt.so": "USE_CUSPARSELT", "libcufile.so": "USE_CUFILE"},
    by_tree=(("c10/cuda/CMakeLists.txt", "PYTORCH_C10_DRIVER_API_SUPPORTED"),),
    lists=(*_BASE_LIST, "libtorch_cuda_distributed_extra_sources"),
    alone=("torch/csrc/cuda/nccl.cpp", _SHIM),
    cxx=("-std=c++17", "-O2", "-w", "-fPIC"),
    host=("-fPIC",),
    nvcc=("-ccbin", "{host}"),
    object=".o",
    compiled="-MD -MF $out.d -c $in -o $out",
    dependencies="gcc",
    # Without the names that nvcc draws by lot: two builds in one folder are then equal. A name that nobody has stops
    # the link, not somebody's `import torch`.
    link="-shared -Wl,-s -Wl,-z,defs -o $out @$out.rsp $way $libraries -Wl,-soname,$name",
    before=("-Wl,--no-as-needed",),
    after=("-Wl,--as-needed", "-ldl", "-lpthread", "-lrt"),
    # glibc's and the compiler's: the compiler adds those that it needs itself.
    spared=re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so\.\d+\Z"),
    packages="lib",
    beside=("nvidia", CUSPARSELT),
    split=True,
)
WINDOWS = Linkage(
    library="{}.dll",
    linked="{}.lib",
    said=re.compile(rb"(?<=\x00)/DWIN32 /D_WINDOWS [^\x00]*(?=\x00)"),
    kept=("-D",),
    definitions=("_CRT_SECURE_NO_DEPRECATE=1",),
    by_library={},
    by_tree=tuple(
        ("CMakeLists.txt", name)
        for name in ("WIN32_LEAN_AND_MEAN", "NOMINMAX", "_UCRT_LEGACY_INFINITY", "EXPORT_AOTI_FUNCTIONS")
    ),
    cxx_by_tree=(("cmake/public/utils.cmake", "/permissive-"), ("cmake/public/utils.cmake", "/Zc:preprocessor")),
    lists=_BASE_LIST,
    alone=(_SHIM,),
    cxx=("/nologo", "/std:c++17", "/O2", "/w", "/MD", *_SAID_BY_CL),
    host=("/w", "/MD", *_SAID_BY_CL),
    nvcc=("--use-local-env", "--no-host-device-move-forward"),
    attention="-Xcompiler /Zc:lambda",
    object=".obj",
    compiled="/showIncludes /c $in /Fo$out",
    dependencies="msvc",
    link="/nologo /DLL /MACHINE:X64 /INCREMENTAL:NO /IGNORE:4049 /IGNORE:4217 /IGNORE:4099 /OUT:$out "
    "/IMPLIB:lib/$import @$out.rsp $way $libraries",
    linker="link.exe",
    after=("kernel32.lib", "user32.lib", "advapi32.lib", "ole32.lib", "shell32.lib"),
    # MAGMA's OpenMP; and NVTX, of which the headers of version 3 are taken.
    spared=re.compile(r"(libiomp5md|nvToolsExt64_\d+)\.dll\Z", re.IGNORECASE),
    packages="lib/x64",
    toolkit=("lib/x64",),
    near=True,
    untried="no GPU half was yet run on Windows: names and kernels are compared before the wheel is written",
)
_SYSTEMS = {"linux": LINUX, "windows": WINDOWS}


def of(system: str) -> Linkage:
    return _SYSTEMS[system]
