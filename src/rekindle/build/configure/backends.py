"""How a project is configured, compiled and packed: PyTorch's setup.py, scikit-build-core, or plain CMake.

And is what CMake configured what the plan says? "Built fine, no CUDA inside" is caught here, in the first minute.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec

from rekindle.build.configure import cmake_result
from rekindle.build.configure.cmake_result import CMakeResult
from rekindle.build.configure.options import Options, switch
from rekindle.build.configure.request import BuildRequest
from rekindle.build.configure.tools import Tools
from rekindle.build.run.folders import Folders
from rekindle.core import codec, files
from rekindle.core.errors import StepFailed
from rekindle.core.findings import Finding, State, failed, finding, passed, unverified, warned
from rekindle.core.version import Version
from rekindle.model.card import Target


class BackendCall(msgspec.Struct, frozen=True, kw_only=True):
    args: tuple[str, ...]
    cwd: str


class BackendJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend needs to know to say its commands."""

    request: BuildRequest
    options: Options
    tools: Tools
    source: str
    build: str
    stage: str
    python: str
    """The one that runs the build: of an environment of its own where the release needs one."""
    version: str
    jobs: int | None = None
    """A fixed number. None leaves it to the job tokens, which an explicit one would make Ninja ignore."""
    keep_going: bool = False
    """After a failure everything that does not depend on it."""


class Backend(ABC):
    """A way to build with Ninja; what most ways have in common is said here."""

    name: str
    copies: bool
    """It writes into the source, so that it works on our copy."""
    configures_again = False
    """Packing runs CMake once more, so that what it decided has to be looked at once more."""

    def python_for(self, source: Path, python: str | None) -> str | None:
        """The Python that a wheel for `python` is built with; None: one wheel is for every Python."""
        return python

    def build_folder(self, folders: Folders) -> Path:
        return folders.build

    def targets(self, job: BackendJob) -> tuple[str, ...]:
        return job.request.targets

    def compile(self, job: BackendJob) -> Sequence[BackendCall]:
        return [ninja(job, self.targets(job))]

    @abstractmethod
    def configure(self, job: BackendJob) -> Sequence[BackendCall]: ...
    @abstractmethod
    def configured(self, build: Path) -> tuple[Path, ...]:
        """The files that configuring leaves."""

    @abstractmethod
    def check(self, job: BackendJob, log: str) -> tuple[Finding, ...]:
        """Is what was configured what the plan says? `log` is what configuring printed."""

    @abstractmethod
    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]: ...
    @abstractmethod
    def collect(self, job: BackendJob, into: Path) -> Path: ...


class _CMake(Backend):
    """What CMake configures."""

    def configure(self, job: BackendJob) -> Sequence[BackendCall]:
        args = [job.tools.cmake.path, "-S", job.source, "-B", job.build, "-G", "Ninja", *cmake_arguments(job)]
        return [BackendCall(args=tuple(args), cwd=job.source)]

    def collect(self, job: BackendJob, into: Path) -> Path:
        return only_wheel(into)

    def configured(self, build: Path) -> tuple[Path, ...]:
        return (build / "CMakeCache.txt", build / "build.ninja")

    def check(self, job: BackendJob, log: str) -> tuple[Finding, ...]:
        return check_configured(job.request, job.options, cmake_result.configured_in(Path(job.build), log))


class PlainCMake(_CMake):
    """Any CMake project: its install tree becomes the wheel."""

    name = "cmake"
    copies = False

    def python_for(self, source: Path, python: str | None) -> str | None:
        return None

    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]:
        args = (job.tools.cmake.path, "--install", job.build, "--prefix", job.stage)
        return [BackendCall(args=args, cwd=job.build)]

    def collect(self, job: BackendJob, into: Path) -> Path:
        from rekindle import __version__
        from rekindle.build.script.standalone_steps import wheel_of_tree

        made_by = f"rekindle {__version__}"
        return wheel_of_tree(Path(job.stage), name=job.request.name, version=job.version, into=into, generator=made_by)


class SetupPy(_CMake):
    """PyTorch through 2.13: setup.py runs CMake in `build`, with what the environment says."""

    name = "setup.py"
    copies = True

    def build_folder(self, folders: Folders) -> Path:
        return folders.source / "build"

    def configure(self, job: BackendJob) -> Sequence[BackendCall]:
        first = (job.python, "setup.py", "build", "--cmake-only")
        commands = [BackendCall(args=first, cwd=job.source)]
        # setup.py hands on only USE_*, BUILD_*, CMAKE_* and a fixed list; the rest is told to CMake itself.
        extra = [f"-D{each.name}={each.cmake_value}" for each in job.options.resolved if each.via == "cmake"]
        if extra:
            commands.append(BackendCall(args=(job.tools.cmake.path, *extra, job.build), cwd=job.source))
        return commands

    def targets(self, job: BackendJob) -> tuple[str, ...]:
        return job.request.targets or ("install",)

    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]:
        args = (job.python, "setup.py", "bdist_wheel", "--dist-dir", str(into))
        return [BackendCall(args=args, cwd=job.source)]


class ScikitBuildCore(_CMake):
    """PyTorch from 2.14: the build folder is ours, so that configure, check and compile can be told apart."""

    name = "scikit-build-core"
    copies = True
    configures_again = True

    def python_for(self, source: Path, python: str | None) -> str | None:
        """`wheel.py-api` makes it one for all (`py3`), or for that Python and newer (`cp311`), with its stable ABI."""
        said = python_api(source)
        if said.startswith("py"):
            return None
        stable = re.fullmatch(r"cp3(\d{1,9})", said)
        if stable is None or python is None or python.endswith("t") or Version(python) < Version(f"3.{stable[1]}"):
            return python
        return f"3.{stable[1]}"

    def configure(self, job: BackendJob) -> Sequence[BackendCall]:
        (plain,) = super().configure(job)
        return [BackendCall(args=(*plain.args, f"-DPython_EXECUTABLE={job.python}"), cwd=job.source)]

    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]:
        args = [job.python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into)]
        told = [f"build-dir={job.build}", "cmake.build-type=Release"]
        # What git ignores is left out of the wheel, and torch/lib is ignored.
        told += ["sdist.include=torch/lib/**"] if job.request.torch else []
        told += [f"cmake.define.{each.name}={each.cmake_value}" for each in job.options.resolved]
        # Its short form came with pip 23.1; Python 3.10 and 3.11 bring an older one.
        args += [f"--config-settings={each}" for each in told]
        return [BackendCall(args=(*args, job.source), cwd=job.source)]


def cmake_arguments(job: BackendJob) -> list[str]:
    """What a plain CMake call is told. PyTorch's own architecture variable is in the environment."""
    args = ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_MAKE_PROGRAM={job.tools.ninja.path}"]
    if job.request.cuda and not job.request.torch:
        targets = job.request.gpu_targets
        listed = ";".join(f"{str(each).partition('_')[2]}-{'virtual' if each.ptx else 'real'}" for each in targets)
        args.append(f"-DCMAKE_CUDA_ARCHITECTURES={listed}")
    return [*args, *(f"-D{each.name}={each.cmake_value}" for each in job.options.resolved)]


def ninja(job: BackendJob, targets: Sequence[str]) -> BackendCall:
    args = [job.tools.ninja.path, "-C", job.build]
    if job.jobs:
        args += ["-j", str(job.jobs)]
    if job.keep_going:
        args += ["-k", "0"]
    return BackendCall(args=(*args, *targets), cwd=job.build)


def only_wheel(into: Path) -> Path:
    found = sorted(into.glob("*.whl"))
    if len(found) != 1:
        message = f"packing left {len(found)} wheels in `{into}` instead of one"
        raise StepFailed(message, hint="read the log of the step; `rekindle diagnose` may know the cause")
    return found[0]


def python_api(source: Path) -> str:
    """What scikit-build-core is told of the Pythons that a wheel is for."""
    project = source / "pyproject.toml"
    if not project.is_file():
        return ""
    found: Any = codec.from_toml(files.read_bytes(project), dict[str, Any], name=f"`{project}`")
    for name in ("tool", "scikit-build", "wheel", "py-api"):
        found = found.get(name, "") if isinstance(found, dict) else ""
    return str(found)


_SOURCE = "CMakeCache.txt, CMakeFiles and build.ninja of this configure run"
_CLEAN = "start again with `--clean`: CMake keeps the first compiler it finds"


def check_configured(request: BuildRequest, options: Options, result: CMakeResult) -> tuple[Finding, ...]:
    """Every expectation as a finding. FAIL stops the build."""
    found: Iterable[Finding] = [failed("configured", "CMake has left no cache", why="nothing was configured")]
    if result.cache:
        found = (
            *_generator(result),
            *_compiler(request, result),
            *_cuda(request, result),
            *_architectures(request, result),
            *_cudnn(request, result),
            *_blas(options, result),
            *_threads(result),
            *_options(options, result),
        )
    return tuple(msgspec.structs.replace(each, source=_SOURCE) for each in found)


def _generator(result: CMakeResult) -> Iterable[Finding]:
    state = State.PASS if result.generator == "Ninja" else State.FAIL
    text = f"the generator is {result.generator or 'not known'}"
    yield finding(state, "generator", text, why="the build resumes through Ninja")


def _compiler(request: BuildRequest, result: CMakeResult) -> Iterable[Finding]:
    found = result.cache.get("CMAKE_CXX_COMPILER") or result.compilers.get("CMAKE_CXX_COMPILER")
    version = result.compilers.get("CMAKE_CXX_COMPILER_VERSION", "")
    if not found:
        yield unverified("host-compiler", "CMake names no C++ compiler")
        return
    wanted = request.compiler
    if wanted.toolset is not None:
        same = f"\\{wanted.toolset}\\".lower() in found.replace("/", "\\").lower() or wanted.kind != "cl"
        asked = f"toolset {wanted.toolset}"
    else:
        same, asked = _same_file(found, wanted.cxx), f"`{wanted.cxx}`"
    text = f"the C++ compiler is `{found}`" + (f" ({version})" if version else "")
    if same:
        yield passed("host-compiler", text)
    else:
        yield failed("host-compiler", f"{text}, not {asked}", why="CUDA takes only some host compilers", fix=_CLEAN)


def _cuda(request: BuildRequest, result: CMakeResult) -> Iterable[Finding]:
    said = result.get("USE_CUDA")
    if request.cuda is None:
        if said is not None and switch(said):
            yield failed("cuda", "CUDA is on, but the plan names no toolkit")
        return
    compiler = result.cache.get("CMAKE_CUDA_COMPILER") or result.compilers.get("CMAKE_CUDA_COMPILER")
    off = (said is not None and switch(said) is False) or (said is None and not compiler)
    if off or (compiler or "").endswith("NOTFOUND"):
        why = "CMake switches CUDA off with a mere warning when it misses a part; all would end well, without CUDA"
        yield failed("cuda", "CUDA is off", why=why, fix="the log of the configure step says what CMake missed")
        return
    yield passed("cuda", "CUDA is on")
    version = Version.find(result.compilers.get("CMAKE_CUDA_COMPILER_VERSION", ""))
    nvcc = _nvcc(result) or compiler
    if version is None:
        yield unverified("nvcc", "CMake names no CUDA compiler version")
    elif version.major_minor != request.cuda.version.major_minor:
        text = f"the CUDA compiler is `{nvcc}` of CUDA {version}, not {request.cuda.version}"
        why = "another CUDA compiles for other cards and links other libraries"
        yield failed("nvcc", text, why=why, fix=_CLEAN)
    else:
        yield passed("nvcc", f"the CUDA compiler is `{nvcc}` ({version})")
    host = result.cache.get("CMAKE_CUDA_HOST_COMPILER") or result.cache.get("CUDA_HOST_COMPILER")
    asked = request.compiler.cuda_host
    if host and request.system == "linux" and not host.endswith("NOTFOUND") and not _same_file(host, asked):
        text = f"nvcc's host compiler is `{host}`, not `{asked}`"
        yield failed("cuda-host", text, why="nvcc refuses compilers newer than it knows")


def _nvcc(result: CMakeResult) -> str | None:
    found = result.cache.get("CUDA_NVCC_EXECUTABLE")
    return found if found and not found.endswith("NOTFOUND") else None


def _architectures(request: BuildRequest, result: CMakeResult) -> Iterable[Finding]:
    if request.cuda is None or not request.arch_list:
        return
    wanted = set(request.gpu_targets)
    if not result.gpu_flags:
        state = State.UNVERIFIED if result.cuda_objects else State.FAIL
        yield finding(state, "architectures", "no file is compiled for a GPU")
        return
    flags = [set(map(Target.parse, names)) for names in result.gpu_flags]
    lost = sorted({target for each in flags for target in wanted - each})
    extra = sorted({target for each in flags for target in each - wanted})
    names = ", ".join(map(str, sorted(wanted)))
    if lost:
        text = f"some or all CUDA files are not compiled for {', '.join(map(str, lost))}"
        fix = "look for flags or a cache that name other architectures; start again with `--clean`"
        yield failed("architectures", text, why="the wheel would not run on the card it is for", fix=fix)
    elif extra:
        text = f"CUDA files are also compiled for {', '.join(map(str, extra))}"
        yield warned("architectures", text, why=f"the plan says {names}; more architectures cost time and size")
    else:
        yield passed("architectures", f"all {result.cuda_objects} CUDA objects are for {names}")


def _cudnn(request: BuildRequest, result: CMakeResult) -> Iterable[Finding]:
    if request.cudnn is None:
        return
    on = result.get("USE_CUDNN")
    if on is not None and switch(on) is False:
        yield failed("cudnn", "cuDNN is off", why="CMake did not find the cuDNN of the plan and went on without")
        return
    said = Version.find(result.summary.get("cuDNN version", "") or result.cache.get("CUDNN_VERSION", ""))
    library = result.cache.get("CUDNN_LIBRARY") or result.cache.get("CUDNN_LIBRARY_PATH", "")
    wanted = request.cudnn.version
    if said and wanted and not said.starts_with(Version(".".join(wanted.text.split(".")[:2]))):
        why = "another cuDNN may hold no code for the card"
        yield failed("cudnn", f"the cuDNN is {said}, not {wanted}", why=why)
    elif said:
        yield passed("cudnn", f"cuDNN is on ({said})")
    else:
        yield unverified("cudnn", f"cuDNN is on, of an unknown version (`{library}`)")


def _blas(options: Options, result: CMakeResult) -> Iterable[Finding]:
    wanted = options.value("BLAS")
    said = result.summary.get("BLAS_INFO") or result.summary.get("BLAS") or result.cache.get("BLAS")
    if wanted is None or said is None:
        return
    names = {"openblas": "open", "mkl": "mkl", "atlas": "atlas", "eigen": "eigen", "generic": "generic"}
    want = names.get(wanted.lower(), wanted.lower())
    if want in said.lower():
        yield passed("blas", f"BLAS is {said}")
    else:
        why = "linear algebra on the CPU would be slow or missing"
        yield failed("blas", f"BLAS is {said or 'none'}, not {wanted}", why=why)


def _threads(result: CMakeResult) -> Iterable[Finding]:
    if result.one_core:
        yield failed(
            "mkl-threads",
            f"MKL would run on one core: CMake took `{result.one_core}`",
            why="FindMKL found no OpenMP of Intel's and fell back to mkl_sequential",
            fix="install Intel's OpenMP beside MKL (oneAPI's compiler runtime), or leave oneAPI out: pip brings both",
        )


def _options(options: Options, result: CMakeResult) -> Iterable[Finding]:
    """Every switch that was set, held against what the project says of it."""
    checked = 0
    for option in options.resolved:
        want, said = switch(option.value), result.get(option.name)
        have = switch(said) if said is not None else None
        if want is None or have is None or option.name in ("USE_CUDA", "USE_CUDNN"):
            continue
        checked += 1
        if have != want:
            text = f"{option.name} is {said}, not {option.cmake_value}"
            state = State.FAIL if option.origin == "user" and want else State.WARN
            fix = "the configure log says why it was changed"
            yield finding(state, f"option-{option.name}", text, why=option.why, fix=fix)
    if checked:
        yield passed("options", f"{checked} options are read back from CMake")


def _same_file(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return Path(one).resolve() == Path(other).resolve() or Path(one).samefile(other)
    except OSError:
        return False
