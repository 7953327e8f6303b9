"""The environment a build runs in: computed, never applied to this process.

`compute` is a pure function of the request, the options and (on Windows) what `vcvarsall.bat` changes. Its result is
a list of changes, each with the reason for it; `over` lays them over an environment and gives a new one. The order of
PATH is the point of it all: the chosen CUDA first, then the compiler, then the rest without any other CUDA.
"""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from rekindle.build.configure.options import Resolved, uses_openblas
from rekindle.build.configure.request import BuildRequest
from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import since
from rekindle.knowledge.torch.releases import torch_release
from rekindle.machine.toolchain.msvc import VcVars, called, unvisited

MARK = "REKINDLE_BUILD"
"""Carried by every process of a build, so that orphans can be told from other people's."""


class Action(str, Enum):
    SET = "set"
    UNSET = "unset"
    PREPEND = "prepend"
    DROP = "drop"
    """Entries taken out of a list."""
    BEHIND = "behind"
    """Entries moved to the end of a list."""


class VariableChange(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    action: Action
    value: str = ""
    """For lists: entries, joined as that system joins them."""
    why: str = ""


class BuildEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    system: str
    changes: tuple[VariableChange, ...]
    vcvars: str | None = None
    """Windows: the command that has to be called first, where it was not captured."""

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """A new environment: `environ` with the changes made. On Windows names are compared without case."""
        result = dict(unvisited(environ)) if self.system == "windows" else dict(environ)
        for change in self.changes:
            _make(change, result, self.system)
        return result

    def value(self, name: str) -> str | None:
        """What a variable is set to."""
        found = [each.value for each in self.changes if each.name == name and each.action is Action.SET]
        return found[-1] if found else None

    def with_variables(self, variables: Mapping[str, str], why: str) -> BuildEnvironment:
        more = tuple(set_to(name, value, why) for name, value in variables.items())
        return msgspec.structs.replace(self, changes=(*self.changes, *more)) if more else self

    def digest_text(self) -> str:
        """What a step's fingerprint takes of it."""
        return "\n".join(f"{each.name} {each.action.value} {each.value}" for each in self.changes if each.name != MARK)


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One variable of the build, before and after. None: not set."""

    name: str
    before: str | None
    after: str | None
    why: str


class BuildPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The folders that a build's environment names."""

    temp: str
    """A folder of its own for temporary files, without spaces."""
    tools: str | None = None
    """The build's own Python environment."""
    git_ceiling: str | None = None
    """git looks for no repository from here upwards."""
    mark: str = ""
    """The folder by which the processes of this build are told apart."""


def compute(
    request: BuildRequest,
    options: Sequence[Resolved] = (),
    *,
    places: BuildPlaces,
    vcvars: VcVars | None = None,
    launcher: str | None = None,
    version: str | None = None,
) -> BuildEnvironment:
    """Every change that this build needs."""
    changes = [
        *_cleared(request),
        *_compiler(request, vcvars),
        *_python(request, places.tools),
        *_math(request, options, places.tools),
        *_cudnn(request),
        *_cuda(request),
        *_generator(request, launcher),
        *_version(request, version),
    ]
    changes += _options(request, options)
    changes += [
        set_to(name, places.temp, "a private folder without spaces: nvcc's temporary files collide and break on spaces")
        for name in (("TEMP", "TMP") if request.system == "windows" else ("TMPDIR",))
    ]
    if places.git_ceiling:
        why = "git answers for the source, not for a repository that the build's folder happens to lie in"
        changes.append(set_to("GIT_CEILING_DIRECTORIES", places.git_ceiling, why))
    if places.mark:
        changes.append(set_to(MARK, places.mark, "tells the processes of this build apart"))
    compiler = request.compiler
    prompt = None
    if request.system == "windows" and vcvars is None and compiler.studio is not None:
        prompt = called(compiler.studio, str(compiler.toolset) if compiler.toolset else None)
    return BuildEnvironment(system=request.system, changes=tuple(changes), vcvars=prompt)


def difference(before: Mapping[str, str], environment: BuildEnvironment) -> tuple[Variable, ...]:
    """Variable by variable what changes, with the reasons."""
    after = environment.over(before)
    fold = str.upper if environment.system == "windows" else str
    old = {fold(name): value for name, value in before.items()}
    new = {fold(name): (name, value) for name, value in after.items()}
    why: dict[str, str] = {}
    for change in environment.changes:
        key = fold(change.name)
        if change.why not in why.get(key, ""):
            why[key] = f"{why[key]}; {change.why}" if key in why else change.why
    found = []
    for key in sorted({*old, *new}):
        was, now = old.get(key), new[key][1] if key in new else None
        if was != now:
            found.append(
                Variable(
                    name=new[key][0] if key in new else key,
                    before=was,
                    after=now,
                    why=why.get(key, "left by another developer prompt"),
                )
            )
    return tuple(found)


# By their names. Set by installers, conda activations, other prompts and old scripts; each can override the plan.
_STALE_EVERYWHERE = {
    "MAX_JOBS CMAKE_BUILD_PARALLEL_LEVEL": "becomes `-j`, with which ninja ignores the job tokens",
    "MAKEFLAGS": "another make's job tokens",
    "NINJAFLAGS CUDAFLAGS NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS": "flags for another build",
    "CMAKE_ARGS": "conda sets it for its own compilers",
    "CFLAGS CXXFLAGS CPPFLAGS LDFLAGS": "flags for another build: conda sets them for its own compilers",
    "SKBUILD_CMAKE_ARGS": "another build's arguments",
    "CMAKE_GENERATOR_PLATFORM CMAKE_GENERATOR_TOOLSET": "Ninja refuses it",
    "CMAKE_TOOLCHAIN_FILE": "another build's toolchain",
    "CUDAARCHS": "the architectures come from the plan",
    "NVCC_CCBIN": "the host compiler comes from the plan",
    "CUDA_BIN_PATH CUDA_INC_PATH CUDA_LIB_PATH": "an old FindCUDA variable that can point to another toolkit",
    "CUDA_ROOT": "read by nothing in PyTorch; CUDA_HOME and CUDA_PATH are",
    "CUDA_TOOLKIT_ROOT_DIR": "a CMake variable that does nothing in the environment",
    "CUDAToolkit_ROOT": "can point to another toolkit",
    "CUDNN_LIB_DIR": "an older spelling of CUDNN_LIBRARY",
    "PYTHONHOME": "another Python's",
    "PYTHONPATH": "another Python's packages",
    "CMAKE_C_COMPILER CMAKE_CXX_COMPILER CMAKE_CUDA_COMPILER CMAKE_CUDA_HOST_COMPILER": "the compilers come from the "
    "plan, through CC, CXX and CUDACXX",
}
_STALE_TORCH = {
    "DEBUG REL_WITH_DEB_INFO": "makes another kind of build: setup.py and scikit-build-core both read it",
    "CMAKE_BUILD_TYPE": "is written over the plan's build type from 2.14 on",
    "USE_NIGHTLY": "stands for somebody else's binaries; from 2.14 on it stops the build",
    "BUILD_PYTHON_ONLY": "leaves libtorch out of the wheel",
    "BUILD_LIBTORCH_WHL": "leaves Python out of the wheel",
    "BUILD_LIBTORCHLESS": "leaves libtorch out of the build",
    "PYTORCH_EXTRA_INSTALL_REQUIREMENTS": "writes other requirements into the wheel",
}
"""What changes a PyTorch without a word when it is left in a shell."""
_STALE_INTEL = {
    "ONEAPI_ROOT ICPP_COMPILER ICX ICC ICPX IFORT CMPLR_ROOT INTEL_TARGET_ARCH": "stale Intel variables make CMake "
    "take another compiler"
}
_STALE_MSVC = {"CL _CL_ LINK _LINK_": "adds options to every compile or link"}


def _cleared(request: BuildRequest) -> Iterable[VariableChange]:
    windows = request.system == "windows"
    for table, holds in (
        (_STALE_EVERYWHERE, True),
        (_STALE_TORCH, request.torch),
        (_STALE_INTEL, windows and request.compiler.kind != "icx"),
        (_STALE_MSVC, windows),
    ):
        for names, why in table.items() if holds else ():
            yield from (_unset(name, why) for name in names.split())


def _options(request: BuildRequest, options: Sequence[Resolved]) -> Iterable[VariableChange]:
    """What setup.py takes from the environment; and, for the backend after it, what no environment may overrule.

    From 2.14 on options are -D, but a USE_*, BUILD_* or CMAKE_* of the environment is written over them (cmake/
    EnvVarForwarding.cmake): one left in a shell would change the build without a word. So both say the same.
    """
    later = request.torch is not None and torch_release(request.torch).backend != "setup.py"
    for each in options:
        if each.via == "environment":
            yield set_to(each.name, each.environment_value, each.why)
        elif later and each.name.startswith(("USE_", "BUILD_", "CMAKE_")):
            yield set_to(each.name, each.cmake_value, each.why)


def _compiler(request: BuildRequest, vcvars: VcVars | None) -> Iterable[VariableChange]:
    compiler = request.compiler
    if request.system == "windows":
        if vcvars is not None:
            yield from captured(vcvars)
        yield set_to("DISTUTILS_USE_SDK", "1", "setuptools takes this prompt's compiler instead of looking for another")
        yield set_to("MSSdk", "1", "the other half of DISTUTILS_USE_SDK, for older setuptools")
        yield set_to("VSLANG", "1033", "compiler messages in English, so that they can be searched for and diagnosed")
    yield set_to("CC", compiler.c, "the plan's compiler, whatever an activation script says")
    yield set_to("CXX", compiler.cxx, "the plan's compiler, whatever an activation script says")
    if request.torch and request.arch == "aarch64" and Version(request.torch) >= since("sve-asked-for"):
        why = "newer releases stop where the compiler cannot make SVE code; without it they build all the same"
        yield set_to("BUILD_IGNORE_SVE_UNAVAILABLE", "1", why)
    if request.cuda and (request.system != "windows" or compiler.kind != "cl"):
        yield set_to("CUDAHOSTCXX", compiler.cuda_host, "nvcc's host compiler")


def captured(vcvars: VcVars) -> Iterable[VariableChange]:
    """What `vcvarsall.bat` changes."""
    why = f"vcvarsall.bat, toolset {vcvars.toolset}" if vcvars.toolset else "vcvarsall.bat"
    for name in vcvars.removes:
        yield _unset(name, why)
    for name, value in vcvars.sets.items():
        yield set_to(name, value, why)
    for name, entries in vcvars.prepends.items():
        yield _front(name, ";".join(entries), why)


def _python(request: BuildRequest, tools: str | None) -> Iterable[VariableChange]:
    paths = request.paths
    folder = paths.dirname(request.python)
    own = [folder]
    if request.system == "windows" and paths.basename(folder).lower() != "scripts":
        own += [paths.join(folder, "Scripts"), paths.join(folder, "Library", "bin")]
    # The system's own folder is on PATH; in front it would hide an environment's tools.
    if folder not in ("/usr/bin", "/bin"):
        why = "the Python to build for, with its cmake and ninja where it has them"
        yield _front("PATH", _joined(request.system, own), why)
    inside = paths.join(tools or "", "Scripts" if request.system == "windows" else "bin")
    if tools and request.requirements and inside != folder:
        yield _front("PATH", inside, "the build's own environment, with the CMake and Ninja that the plan requires")
    yield set_to("PYTHONUTF8", "1", "file names and messages in UTF-8 on any code page")
    yield set_to("PYTHONNOUSERSITE", "1", "packages of the user's own site shadow the pinned ones")


def _math(request: BuildRequest, options: Sequence[Resolved], tools: str | None) -> Iterable[VariableChange]:
    blas = next((each.value for each in options if each.name == "BLAS"), None)
    paths = request.paths
    mkl = request.mkl
    openblas = request.openblas
    if openblas and not openblas.usual and uses_openblas(options):
        yield set_to("OpenBLAS_HOME", openblas.root, "where PyTorch's FindOpenBLAS looks beside the system's folders")
    if request.pip_mkl and tools:
        mkl = paths.join(tools, "Library") if request.system == "windows" else tools
    if not mkl or blas != "MKL":
        return
    why = "MKL's headers and libraries"
    yield set_to("INTEL_MKL_DIR", mkl, "where PyTorch's FindMKL looks first")
    yield set_to("CMAKE_PREFIX_PATH", mkl, why)
    if request.system == "windows":
        libs = [paths.join(mkl, "lib"), paths.join(mkl, "lib", "intel64"), *request.openmp_libraries]
        omp = request.openmp if mkl == request.mkl and request.openmp else mkl
        yield set_to("INTEL_OMP_DIR", omp, "Intel's OpenMP: without it FindMKL takes mkl_sequential, and says nothing")
        yield _front("INCLUDE", paths.join(mkl, "include"), why)
        yield _front("LIB", ";".join(libs), why)
        binaries = [*request.mkl_binaries] if mkl == request.mkl else [paths.join(mkl, "bin")]
        yield _front("PATH", ";".join(binaries), "programs of the build load MKL's DLLs")


def _cudnn(request: BuildRequest) -> Iterable[VariableChange]:
    cudnn = request.cudnn
    if cudnn is None or request.cuda is None:
        return
    paths = request.paths
    include = cudnn.include or paths.join(cudnn.root, "include")
    yield set_to("CUDNN_ROOT", cudnn.root, "this cuDNN and no other")
    yield set_to("CUDNN_INCLUDE_DIR", include, "this cuDNN and no other")
    folder = ("lib", "x64") if request.system == "windows" else ("lib",)
    library = cudnn.library or paths.join(cudnn.root, *folder)
    why = "the folder of its library: PyTorch's FindCUDNN looks in it, a file's name would not do"
    yield set_to("CUDNN_LIBRARY", library, why)
    if request.system == "windows":
        yield _front("PATH", paths.join(cudnn.root, "bin"), "programs of the build load cuDNN's DLLs")


def _cuda(request: BuildRequest) -> Iterable[VariableChange]:
    cuda = request.cuda
    if cuda is None:
        return
    paths = request.paths
    home = cuda.root
    own = list(dict.fromkeys([paths.join(cuda.root, "bin"), paths.dirname(cuda.nvcc)]))
    # A distribution keeps nvcc in /usr/bin: on PATH already, and in front it would hide the environment's own tools.
    own = [folder for folder in own if _is_cuda_folder(folder)] or own
    if request.system == "windows":
        own.append(paths.join(cuda.root, "libnvvp"))
        number = str(cuda.version.major_minor).replace(".", "_")
        yield set_to(f"CUDA_PATH_V{number}", home, "where torch looks for this CUDA's DLLs")
        yield _unset("NVTOOLSEXT_PATH", "an old NVTX installation beside the toolkit's own")
    elif home != paths.dirname(paths.dirname(cuda.nvcc)) and not _is_whole(home):
        home = paths.dirname(paths.dirname(cuda.nvcc))
    dedicated = [folder for folder in cuda.rivals if _is_cuda_folder(folder)]
    shared = [folder for folder in cuda.rivals if folder not in dedicated and folder not in own]
    if dedicated:
        why = "another CUDA's programs: only one CUDA may win"
        yield VariableChange(name="PATH", action=Action.DROP, value=_joined(request.system, dedicated), why=why)
    if shared:
        why = "holds another CUDA's programs among others"
        yield VariableChange(name="PATH", action=Action.BEHIND, value=_joined(request.system, shared), why=why)
    yield _front(
        "PATH",
        _joined(request.system, own),
        "the chosen CUDA first: an nvcc that finds another ptxas compiles for other cards",
    )
    yield set_to("CUDA_HOME", home, "PyTorch's build reads it first")
    yield set_to("CUDA_PATH", home, "CMake's FindCUDA and torch at run time read it")
    yield set_to("CUDACXX", cuda.nvcc, "the nvcc that CMake takes")
    if request.torch:
        why = "PyTorch's build clones the NCCL that is pinned for this CUDA; without it, the one for the newest CUDA"
        yield set_to("DESIRED_CUDA", str(cuda.version.major_minor), why)
    if request.arch_list:
        yield set_to(
            "TORCH_CUDA_ARCH_LIST", request.arch_list, "without it: the cards in this machine, or a common list"
        )
        yield set_to("TORCH_NVCC_FLAGS", "-Xfatbin -compress-all", "GPU code compressed, as in the official wheels")


def _generator(request: BuildRequest, launcher: str | None) -> Iterable[VariableChange]:
    yield set_to("CMAKE_GENERATOR", "Ninja", "the generator that resumes well and needs no Visual Studio integration")
    yield set_to("CMAKE_EXPORT_COMPILE_COMMANDS", "ON", "the command of every file, for diagnosis")
    if request.system == "windows":
        yield set_to(
            "CMAKE_NINJA_FORCE_RESPONSE_FILE",
            "1",
            "command lines longer than Windows allows; the other response-file switches do nothing with Ninja",
        )
    new = request.cmake_version is not None and request.cmake_version >= Version("4")
    if request.torch and new and not torch_release(request.torch).cmake4_unpatched:
        why = "this release's CMake files ask for a compatibility that CMake 4 has dropped"
        yield set_to("CMAKE_POLICY_VERSION_MINIMUM", "3.5", why)
    if launcher:
        for language in ("C", "CXX", "CUDA"):
            yield set_to(f"CMAKE_{language}_COMPILER_LAUNCHER", launcher, "compiles come from the cache where they can")


def _version(request: BuildRequest, version: str | None) -> Iterable[VariableChange]:
    if request.torch and version:
        yield set_to(
            "PYTORCH_BUILD_VERSION",
            version,
            "the wheel names release, stack and architectures; otherwise a tag calls itself an alpha",
        )
        yield set_to("PYTORCH_BUILD_NUMBER", "1", "above 1 the version gets a `.postN`")


def _is_cuda_folder(folder: str) -> bool:
    """A folder that belongs to one toolkit alone, and not to the system like /usr/local/bin."""
    return "cuda" in folder.lower().replace("\\", "/").rstrip("/").removesuffix("/bin").removesuffix("/libnvvp")


def _is_whole(root: str) -> bool:
    """Distributions scatter a toolkit over /usr: its own folder under /usr/lib is no CUDA_HOME."""
    return not root.startswith("/usr/lib/")


def set_to(name: str, value: str, why: str) -> VariableChange:
    return VariableChange(name=name, action=Action.SET, value=value, why=why)


def _unset(name: str, why: str) -> VariableChange:
    return VariableChange(name=name, action=Action.UNSET, why=why)


def _front(name: str, value: str, why: str) -> VariableChange:
    return VariableChange(name=name, action=Action.PREPEND, value=value, why=why)


def _make(change: VariableChange, environ: dict[str, str], system: str) -> None:
    name = change.name
    if system == "windows":
        spelled = [key for key in environ if key.upper() == name.upper()]
        name = spelled[0] if spelled else name
        for other in spelled[1:]:
            del environ[other]
    if change.action is Action.SET:
        environ[name] = change.value
    elif change.action is Action.UNSET:
        environ.pop(name, None)
    else:
        entries = _split(system, change.value)
        named = {_folded(system, entry) for entry in entries}
        old = _split(system, environ.get(name, ""))
        rest = [entry for entry in old if _folded(system, entry) not in named]
        moved = [entry for entry in old if _folded(system, entry) in named]
        if change.action is Action.PREPEND:
            rest = [*entries, *rest]
        elif change.action is Action.BEHIND:
            rest = [*rest, *dict.fromkeys(moved)]
        environ[name] = _joined(system, rest)


def _split(system: str, text: str) -> list[str]:
    return [entry for entry in text.split(";" if system == "windows" else ":") if entry]


def _joined(system: str, entries: Iterable[str]) -> str:
    return (";" if system == "windows" else ":").join(entries)


def _folded(system: str, entry: str) -> str:
    if system == "windows":
        return ntpath.normcase(entry.strip().strip('"')).rstrip("\\")
    return posixpath.normpath(entry)
