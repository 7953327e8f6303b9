"""Is what CMake configured what the plan says? "Built fine, no CUDA inside" is caught here, in the first minute."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from rekindle.build.configure.cmake_result import CMakeResult
from rekindle.build.configure.options import Options, switch
from rekindle.build.configure.request import BuildRequest
from rekindle.core.findings import Finding, State, failed, finding, passed, unverified, warned
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Target

_SOURCE = "CMakeCache.txt, CMakeFiles and build.ninja of this configure run"
_CLEAN = "start again with `--clean`: CMake keeps the first compiler it finds"


def check(request: BuildRequest, options: Options, result: CMakeResult) -> tuple[Finding, ...]:
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
