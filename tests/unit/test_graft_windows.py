"""The graft on Windows: a small official wheel out of mingw's DLLs, its Ninja file, its border, the new wheel."""

from __future__ import annotations

import shlex
import struct
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from rekindle.build.configure import request as requests
from rekindle.build.configure.backends import BackendJob
from rekindle.build.configure.request import BuildFile, BuildRequest
from rekindle.build.graft import backend, ninja_file, platforms
from rekindle.build.graft import base as bases
from rekindle.build.graft.base import Base
from rekindle.build.graft.ninja_file import Half
from rekindle.build.run.folders import wheel_version
from rekindle.core.errors import BadInput, ChecksFailed, UsageError
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.machine.model import FoundPython, FoundStudio, FoundToolset, Machine
from rekindle.model.toolkit import FoundToolkit
from rekindle.wheels.inspect import grafted
from support import dlls, small_wheels, trees
from support.artefacts import unverified
from support.compiled import MINGW, Compiler
from support.ninjas import ninja_with_tokens

COMMIT = "e2d141dbde55c2a4370fac5165b0561b6af4798b"
CL = r"C:\VC\Tools\MSVC\14.38.33130\bin\Hostx64\x64\cl.exe"
CONFIG = '#define AT_CUDNN_ENABLED() 1\n#define AT_MAGMA_ENABLED() 1\n#define NVCC_FLAGS_EXTRA "-gencode;x"\n'
TARGETS = (
    'set_target_properties(torch_cpu PROPERTIES\n  INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO"\n'
)
SAID = b"/DWIN32 /D_WINDOWS /GR /EHsc /bigobj /FS -DUSE_PTHREADPOOL -DNDEBUG -ID:/mkl/include /wd4624"
NAME = "torch-2.7.1+cu118-cp311-cp311-win_amd64.whl"

Wants = Mapping[str, Sequence[str]]
"""Names by the DLL that they are taken from."""
Parts = Mapping[str, tuple[Sequence[str], Wants]]
"""What a library offers and wants."""
HALF: Parts = {
    "c10_cuda": (["stream"], {"cudart64_110.dll": ["cudaMalloc"], "KERNEL32.dll": ["GetLastError"]}),
    "torch_cuda": (
        ["kernel", "hook"],
        {"c10_cuda.dll": ["stream"], "cublas64_11.dll": ["cublasCreate_v2"], "cudnn64_9.dll": ["cudnnCreate"]},
    ),
}


@pytest.fixture
def mingw(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path / "made", MINGW)


def dll(
    mingw: Compiler, folder: str, name: str, *, offers: Sequence[str] = ("own",), wants: Wants | None = None
) -> Path:
    """With its import library beside it, as MSVC's linker leaves it."""
    libraries = [str(mingw.import_library(other, names)) for other, names in (wants or {}).items()]
    called = [one for names in (wants or {}).values() for one in names]
    beside = mingw.root / folder / f"{Path(name).stem}.lib"
    beside.parent.mkdir(parents=True, exist_ok=True)
    options = [*libraries, f"-Wl,--out-implib,{beside}"]
    return mingw.build(f"{folder}/{name}", offers=offers, wants=called, options=options)


def gpu_half(mingw: Compiler, folder: str, changed: Parts | None = None) -> dict[str, Path]:
    parts = {**HALF, **(changed or {})}
    return {name: dll(mingw, folder, f"{name}.dll", offers=own, wants=taken) for name, (own, taken) in parts.items()}


def wheel(mingw: Compiler, folder: Path, *, cudnn: str = "9,1,0,70") -> Path:
    """What Rekindle reads of an official wheel for Windows, and no more."""
    lib = mingw.root / "old"
    gpu_half(mingw, "old")
    for name, own in (("cudart64_110", "cudaMalloc"), ("cublas64_11", "cublasCreate_v2")):
        dll(mingw, "old", f"{name}.dll", offers=[own])
    resource, compiled = mingw.work / "cudnn.rc", mingw.work / "cudnn.o"
    resource.write_text(f"1 VERSIONINFO\nFILEVERSION {cudnn}\nBEGIN\nEND\n", encoding="utf-8")
    mingw.run([f"{MINGW}-windres", resource, compiled])
    mingw.build("old/cudnn64_9.dll", offers=["cudnnCreate"], options=[str(compiled)])
    texts = mingw.work / "texts.c"
    texts.write_text(
        '__declspec(dllexport) const char list[] = "\\0sm_37 sm_50 sm_60 sm_70 sm_80\\0";\n', encoding="utf-8"
    )
    taken = {"torch_cuda.dll": ["kernel", "hook"], "c10_cuda.dll": ["stream"], "MSVCP140.dll": ["string"]}
    libraries = [str(mingw.import_library(other, names)) for other, names in taken.items()]
    called = [name for names in taken.values() for name in names]
    mingw.build("old/torch_python.dll", wants=called, options=[*libraries, str(texts)])
    dlls.dll(lib / "torch_cpu.dll", ["MSVCP140.dll"], texts=[SAID])
    info = "torch-2.7.1+cu118.dist-info"
    version = f"__version__ = '2.7.1+cu118'\ncuda: Optional[str] = '11.8'\ngit_version = '{COMMIT}'\n"
    told = {
        "torch/__init__.py": "", "torch/version.py": version, "torch/include/ATen/cuda/CUDAConfig.h": CONFIG,
        "torch/share/cmake/Caffe2/Caffe2Targets.cmake": TARGETS,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.7.1+cu118\nRequires-Dist: filelock\n"
        'Requires-Dist: nvidia-nccl-cu11==2.21.5; platform_system == "Linux"\n\nTensors.\n',
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-win_amd64\n",
    }  # fmt: skip
    kept = {f"torch/lib/{path.name}": path.read_bytes() for path in sorted(lib.iterdir()) if path.suffix == ".dll"}
    old = {f"torch/lib/{name}.lib": (lib / f"{name}.lib").read_bytes() for name in HALF}
    return small_wheels.make(folder, {**{name: text.encode() for name, text in told.items()}, **kept, **old}, name=NAME)


def tree(root: Path) -> Path:
    trees.write(root / "s", {
        "build_variables.bzl": 'libtorch_cuda_core_sources = [\n    "torch/csrc/CudaIPCTypes.cpp",\n'
        '    "aten/src/ATen/native/cuda/linalg/Pool.cpp",\n]\n'
        'libtorch_cuda_distributed_extra_sources = [\n    "torch/csrc/distributed/c10d/NCCLUtils.cpp",\n]\n',
        "CMakeLists.txt": "  add_compile_definitions(NOMINMAX)\n", "cmake/public/cuda.cmake": "",
        "cmake/Dependencies.cmake": "",
        "cmake/public/utils.cmake": 'set(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} /Zc:preprocessor" PARENT_SCOPE)\n',
        "caffe2/CMakeLists.txt": "USE_EXPERIMENTAL_CUDNN_V8_API",
        "c10/cuda/CMakeLists.txt": 'set(C10_CUDA_SRCS\n  CUDAStream.cpp\n)\n"-DPYTORCH_C10_DRIVER_API_SUPPORTED"\n',
        "c10/cuda/CUDAStream.cpp": "", "torch/csrc/CudaIPCTypes.cpp": "", "torch/csrc/cuda/nccl.cpp": "",
        "torch/csrc/distributed/c10d/NCCLUtils.cpp": "", "aten/src/ATen/native/cuda/Small.cu": "x",
        "aten/src/ATen/native/transformers/cuda/attention.cu": "", "aten/src/ATen/native/cuda/linalg/Pool.cpp": "",
    })  # fmt: skip
    generated = root / "b" / ninja_file.GENERATED
    generated.mkdir(parents=True)
    (generated / "RegisterCUDA_0.cpp").write_text("", encoding="utf-8")
    return root


def toolkit(root: Path) -> Path:
    for name in ("cudart", "cublas"):
        path = root / "CUDA kit" / "lib" / "x64" / f"{name}.lib"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"!<arch>\n")
    (root / "CUDA kit" / "include").mkdir()
    return root / "CUDA kit"


def packages(root: Path, base: Base) -> Path:
    """The build's environment, as pip leaves it on Windows."""
    site = root / "env" / "Lib" / "site-packages"
    for line in base.requires:
        name, _, version = line.partition("==")
        if name.startswith("nvidia-"):
            info = site / f"{name.replace('-', '_')}-{version.replace('*', '89')}.dist-info"
            info.mkdir(parents=True)
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version.replace('*', '89')}\n"
            (info / "METADATA").write_text(text, encoding="utf-8")
    library = site / "nvidia" / "cudnn" / "lib" / "x64" / "cudnn64_9.lib"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"!<arch>\n")
    (site / "nvidia" / "cudnn" / "include").mkdir()
    return root / "env" / "Scripts" / "python.exe"


def job(root: Path, base: Base, python: Path) -> BackendJob:
    request = BuildRequest(
        name="torch", torch="2.7.1", source=str(root / "s"), system="windows", arch="x86_64", python=str(python),
        arch_list="3.5+PTX", base=base, compiler=requests.Compiler(kind="cl", cxx="cl", c="cl", cuda_host=CL),
        cuda=requests.Cuda(root=str(toolkit(root)), nvcc="nvcc.exe", version=Version("11.8.89")),
    )  # fmt: skip
    return BackendJob(
        request=request, options=None, tools=None, source=str(root / "s"), build=str(root / "b"),  # type: ignore[arg-type]
        stage=str(root / "i"), python=str(python), version="2.7.1+cu118.sm35ptx",
    )  # fmt: skip


@pytest.fixture
def ready(tmp_path: Path, mingw: Compiler) -> tuple[BackendJob, Half]:
    base = bases.read(wheel(mingw, tmp_path / "base"))
    tree(tmp_path)
    found = job(tmp_path, base, packages(tmp_path, base))
    return found, backend.half_of(found)


def test_a_base_for_windows_says_what_it_is_and_needs_nvidias_headers(tmp_path: Path, mingw: Compiler) -> None:
    base = bases.read(wheel(mingw, tmp_path / "base"))
    assert (base.system, base.arch, base.torch, base.cuda, base.python) == (
        "windows", "x86_64", "2.7.1", Version("11.8"), "3.11",
    )  # fmt: skip
    assert base.requires == ("filelock", "nvidia-cuda-runtime-cu11==11.8.*", "nvidia-cudnn-cu11==9.1.0.70")
    wanted = bases.on_base(BuildFile(arch_list="3.5", cuda=Version("11.8")), base)
    assert (wanted.system, wanted.backend) == ("windows", "graft")
    with pytest.raises(UsageError, match="this plan is for Windows on x86_64; this is Linux"):
        requests.resolve(BuildFile(base=base.wheel, arch_list="3.5"), Machine(os="linux", arch="x86_64"))


def test_a_windows_machine_builds_it_with_its_own_tools(tmp_path: Path, mingw: Compiler) -> None:
    root = CL.partition(r"\bin")[0]
    toolset = FoundToolset(version=Version("14.38.33130"), root=root, studio=r"C:\VS")
    machine = Machine(
        os="windows", arch="x86_64", pythons=(FoundPython(path=r"C:\py\python.exe", version=Version("3.11.9")),),
        toolkits=(FoundToolkit(root=r"C:\kit", nvcc=r"C:\kit\bin\nvcc.exe", version=Version("11.8.89")),),
        studios=(FoundStudio(name="Visual Studio", root=r"C:\VS", toolsets=(toolset,)),),
    )  # fmt: skip
    found = wheel(mingw, tmp_path / "base")
    request = requests.resolve(BuildFile(base=str(found), arch_list="3.5+PTX", cuda=Version("11.8")), machine)
    assert (request.system, request.torch, request.compiler.cuda_host) == ("windows", "2.7.1", CL)
    assert "nvidia-cudnn-cu11==9.1.0.70" in request.requirements
    assert wheel_version(request) == "2.7.1+cu118.sm35ptx"


def test_a_base_whose_cudnn_has_no_package_is_refused(tmp_path: Path, mingw: Compiler) -> None:
    with pytest.raises(BadInput, match=r"does not have a cuDNN of 8\.9\.4 or newer"):
        bases.read(wheel(mingw, tmp_path / "base", cudnn="6,14,11,6050"))


def test_the_ninja_file_is_msvcs_and_ninja_reads_it(ready: tuple[BackendJob, Half]) -> None:
    _, half = ready
    assert set(half.sources.files) == {"c10_cuda", "torch_cuda"} and half.sources.left == ()
    assert half.unpacked.flags == ("-DWIN32", "-D_WINDOWS", "-DUSE_PTHREADPOOL", "-DNDEBUG")
    ninja_file.write(half, {})
    text = (half.build / "build.ninja").read_text(encoding="utf-8")
    rules = {line.split()[2]: line for line in text.splitlines() if line.startswith("  command")}
    cl, nvcc, link = rules["cl"], rules["nvcc.exe"], rules[CL.replace("cl.exe", "link.exe")]
    for word in ("-DNOMINMAX", "-DUSE_DISTRIBUTED", "-DUSE_EXPERIMENTAL_CUDNN_V8_API", "-DHAVE_AVX512_CPU_DEFINITION"):
        assert f" {word} " in cl and f" {word} " in nvcc
    for word in ("NCCL", "LAZY_CUDA_LINALG", "DRIVER_API", "fPIC", "mkl", "-ccbin", str(half.tree)):
        assert word not in cl and word not in nvcc
    assert cl.endswith("$flags /showIncludes /c $in /Fo$out") and " /std:c++17 /O2 /w /MD " in cl
    assert " -Xcompiler /w,/MD,/GR,/EHsc," in nvcc and "-gencode arch=compute_35,code=sm_35" in nvcc
    assert f'"-I{Path(half.request.cuda.root) / "include"}"' in nvcc, "Program Files"  # type: ignore[union-attr]
    assert "/Zc:preprocessor" in cl and "/Zc:preprocessor" not in nvcc and "/permissive-" not in cl, (
        "as in CMake's files"
    )
    assert "/IMPLIB:lib/$import @$out.rsp" in link
    assert "build lib/torch_cuda.dll | lib/torch_cuda.lib: link " in text and " | lib/c10_cuda.lib\n" in text
    linked = next(line for line in text.splitlines() if "cudnn64_9.lib" in line)
    assert [Path(word).name for word in shlex.split(linked)[2:]] == [
        "c10_cuda.lib", "cublas.lib", "cudnn64_9.lib",
        "kernel32.lib", "user32.lib", "advapi32.lib", "ole32.lib", "shell32.lib",
    ]  # fmt: skip
    assert f"attention.cu\n  flags = -DTORCH_CUDA_BUILD_MAIN_LIB {platforms.WINDOWS.attention}\n" in text
    said = subprocess.run(
        [ninja_with_tokens() / "ninja", "-n", "-C", half.build], capture_output=True, text=True, check=False, timeout=60
    )
    assert said.returncode == 0, said.stdout
    assert text.count("Pool.cpp.obj:") == 1, "it is in a list and in a folder"
    assert text.index("RegisterCUDA_0.cpp.obj:") < text.index("Small.cu.obj:"), "minutes long, so not the last"


def test_a_library_of_the_base_that_nothing_links_stops_before_compiling(ready: tuple[BackendJob, Half]) -> None:
    _, half = ready
    (Path(half.request.cuda.root) / "lib" / "x64" / "cublas.lib").unlink()  # type: ignore[union-attr]
    with pytest.raises(BadInput, match=r"`cublas64_11.dll`, which the base's GPU half is linked with"):
        ninja_file.write(half, {})


NEWER = {**HALF["c10_cuda"][1], "KERNEL32.dll": ["GetTickCount64"]}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"c10_cuda": (["stream"], NEWER)}, None),
        ({"torch_cuda": (["kernel"], HALF["torch_cuda"][1])}, "missing, `torch_cuda.dll!hook` among them"),
        ({"c10_cuda": (["other"], HALF["c10_cuda"][1])}, "missing, `c10_cuda.dll!stream` among them"),
        (
            {"c10_cuda": (["stream"], {"cudart64_110.dll": ["cudaNew"]})},
            "nowhere, `cudart64_110.dll!cudaNew`",
        ),
        ({"c10_cuda": (["stream"], {"cudart64_12.dll": ["cudaMalloc"]})}, "nowhere, `cudart64_12.dll!cudaMalloc`"),
    ],
)
def test_names_are_those_of_one_dll(
    ready: tuple[BackendJob, Half],
    mingw: Compiler,
    changed: Parts,
    words: str | None,
) -> None:
    """What Windows itself has is not in the wheel, also where the old half did not take that name."""
    found = backend.check_border(ready[1], gpu_half(mingw, "new", changed))
    bad = [each.found for each in found if each.state is not State.PASS]
    assert bad == [] if words is None else any(words in each for each in bad)


def test_the_new_wheel_is_the_base_but_for_the_gpu_half(
    ready: tuple[BackendJob, Half], mingw: Compiler, tmp_path: Path
) -> None:
    asked, half = ready
    new = gpu_half(mingw, "new", {"c10_cuda": (["stream", "more"], HALF["c10_cuda"][1])})
    base = backend.base_of(asked)
    made = backend.assemble(half, base, new, version=asked.version, into=tmp_path, proofs=[])
    assert made.name == "torch-2.7.1+cu118.sm35ptx-cp311-cp311-win_amd64.whl"
    small_wheels.check_record(made)
    compared = grafted.compare(Path(base.wheel), made)
    assert [each.state for each in compared] == [State.PASS] * 4, compared
    with zipfile.ZipFile(made) as zipped:
        for name in ("c10_cuda.dll", "c10_cuda.lib", "torch_cuda.dll", "torch_cuda.lib"):
            assert zipped.read(f"torch/lib/{name}") == (new["c10_cuda"].parent / name).read_bytes()
        assert b"\0sm_35 compute_35\0" in zipped.read("torch/lib/torch_python.dll")
        said = zipped.read("torch-2.7.1+cu118.sm35ptx.dist-info/METADATA").decode()
    assert "This is not the official wheel." in said and "torch_cuda.dll" in said
    lacking = backend.assemble(
        half, base, gpu_half(mingw, "new", {"torch_cuda": (["kernel"], HALF["torch_cuda"][1])}),
        version="2.7.1+cu118.sm35", into=tmp_path, proofs=[],
    )  # fmt: skip
    assert any("`torch_cuda.dll!hook`" in each.found for each in grafted.compare(Path(base.wheel), lacking))


def test_a_library_that_cannot_be_read_is_no_pass(
    ready: tuple[BackendJob, Half], mingw: Compiler, tmp_path: Path
) -> None:
    asked, half = ready
    new, base = gpu_half(mingw, "new"), backend.base_of(asked)
    new["torch_cuda"].write_bytes(new["torch_cuda"].read_bytes()[:600])
    made = backend.assemble(half, base, new, version=asked.version, into=tmp_path, proofs=[])
    with pytest.raises(BadInput, match=r"torch_cuda\.dll"):
        grafted.compare(Path(base.wheel), made)
    with pytest.raises(BadInput, match=r"torch_cuda\.dll"):
        backend.check_border(half, new)


def test_nothing_is_written_where_the_kernels_could_not_be_counted(
    ready: tuple[BackendJob, Half], mingw: Compiler, tmp_path: Path
) -> None:
    """These DLLs are none that a Python could import: what is not proven is not written."""
    asked, half = ready
    for path in gpu_half(mingw, "new").values():
        (half.build / "lib").mkdir(exist_ok=True)
        path.rename(half.build / "lib" / path.name)
    (half.build / "base" / "torch" / "__init__.py").write_text("raise OSError('WinError 126')\n", encoding="utf-8")
    python = tmp_path / "env" / "Scripts" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    with pytest.raises(ChecksFailed, match=r"could not be imported here, so its kernels could not be counted: .*126"):
        backend.Graft().collect(msgspec.structs.replace(asked, python=str(python)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_kernel_is_the_same_wherever_its_source_lay() -> None:
    """The first is what the official 2.7.1 for Windows says; ours is compiled from the folder of the build."""
    official = (
        r"registered at C:\actions-runner\_work\pytorch\pytorch\pytorch\aten\src\ATen\autocast_mode.cpp:169 :: (T _0)"
    )
    ours = r"registered at ..\s\aten\src\ATen\autocast_mode.cpp:169 :: (T _0)"
    other = r"registered at ..\s\aten\src\ATen\native\cuda\Blas.cpp:169 :: (T _0)"

    def told(line: str) -> dict[str, dict[str, list[str]]]:
        return {"registered": {"mm": [line]}, "computed": {}}

    assert list(backend.differences(told(official), told(ours))) == []
    assert list(backend.differences(told(official), told(other))) == ["mm"]


@pytest.mark.parametrize("compiler", ["g++", f"{MINGW}-g++"])
def test_sizes_are_read_out_of_an_object_of_any_format(tmp_path: Path, compiler: str) -> None:
    source, made = tmp_path / "layouts.cpp", tmp_path / "layouts.o"
    asked = ["sizeof(char[728])", "offsetof(Pair, second)"]
    pair = "struct Pair { char first; double second; };\n"
    source.write_text(backend.table_of(["cstddef"], asked).replace("extern", f"{pair}extern", 1), encoding="utf-8")
    try:
        subprocess.run([compiler, "-c", str(source), "-o", str(made)], check=True, timeout=60)
    except FileNotFoundError:
        unverified(f"`{compiler}` is not installed here")
    assert backend.read_table(made.read_bytes(), 2) == [728, 8]
    assert backend.read_table(struct.pack("<4Q", 1, 2, 3, 4), 2) is None
