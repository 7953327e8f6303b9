"""Is what CMake configured what the plan says? "Built fine, no CUDA inside" is caught here, in the first minute."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rekindle.build.configure.cmake_result import CMakeResult
from rekindle.build.configure.options import Options, switch
from rekindle.build.configure.request import BuildRequest
from rekindle.core.findings import Finding, Fix, State
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Target

_SOURCE = "CMakeCache.txt, CMakeFiles and build.ninja of this configure run"


def check(request: BuildRequest, options: Options, result: CMakeResult) -> tuple[Finding, ...]:
    """Every expectation as a finding. FAIL stops the build."""
    if not result.cache:
        return (_finding("configured", State.FAIL, "CMake has left no cache", "nothing was configured"),)
    return tuple(
        finding
        for part in (
            _generator(result),
            _compiler(request, result),
            _cuda(request, result),
            _architectures(request, result),
            _cudnn(request, result),
            _blas(options, result),
            _threads(result),
            _options(options, result),
        )
        for finding in part
    )


def _generator(result: CMakeResult) -> Iterable[Finding]:
    state = State.PASS if result.generator == "Ninja" else State.FAIL
    yield _finding(
        "generator", state, f"the generator is {result.generator or 'not known'}", "the build resumes through Ninja"
    )


def _compiler(request: BuildRequest, result: CMakeResult) -> Iterable[Finding]:
    found = result.cache.get("CMAKE_CXX_COMPILER") or result.compilers.get("CMAKE_CXX_COMPILER")
    version = result.compilers.get("CMAKE_CXX_COMPILER_VERSION", "")
    if not found:
        yield _finding("host-compiler", State.UNVERIFIED, "CMake names no C++ compiler")
        return
    wanted = request.compiler
    if wanted.toolset is not None:
        same = f"\\{wanted.toolset}\\".lower() in found.replace("/", "\\").lower() or wanted.kind != "cl"
        asked = f"toolset {wanted.toolset}"
    else:
        same, asked = _same_file(found, wanted.cxx), f"`{wanted.cxx}`"
    text = f"the C++ compiler is `{found}`" + (f" ({version})" if version else "")
    if same:
        yield _finding("host-compiler", State.PASS, text)
    else:
        yield _finding(
            "host-compiler",
            State.FAIL,
            f"{text}, not {asked}",
            "CUDA takes only some host compilers",
            "start again with `--clean`: CMake keeps the first compiler it finds",
        )


def _cuda(request: BuildRequest, result: CMakeResult) -> Iterable[Finding]:
    said = result.get("USE_CUDA")
    if request.cuda is None:
        if said is not None and switch(said):
            yield _finding("cuda", State.FAIL, "CUDA is on, but the plan names no toolkit")
        return
    compiler = result.cache.get("CMAKE_CUDA_COMPILER") or result.compilers.get("CMAKE_CUDA_COMPILER")
    off = (said is not None and switch(said) is False) or (said is None and not compiler)
    if off or (compiler or "").endswith("NOTFOUND"):
        why = "CMake switches CUDA off with a mere warning when it misses a part; all would end well, without CUDA"
        yield _finding("cuda", State.FAIL, "CUDA is off", why, "the log of the configure step says what CMake missed")
        return
    yield _finding("cuda", State.PASS, "CUDA is on")
    version = Version.find(result.compilers.get("CMAKE_CUDA_COMPILER_VERSION", ""))
    nvcc = _nvcc(result) or compiler
    if version is None:
        yield _finding("nvcc", State.UNVERIFIED, "CMake names no CUDA compiler version")
    elif version.major_minor != request.cuda.version.major_minor:
        text = f"the CUDA compiler is `{nvcc}` of CUDA {version}, not {request.cuda.version}"
        why = "another CUDA compiles for other cards and links other libraries"
        yield _finding(
            "nvcc", State.FAIL, text, why, "start again with `--clean`: CMake keeps the first compiler it finds"
        )
    else:
        yield _finding("nvcc", State.PASS, f"the CUDA compiler is `{nvcc}` ({version})")
    host = result.cache.get("CMAKE_CUDA_HOST_COMPILER") or result.cache.get("CUDA_HOST_COMPILER")
    if (
        host
        and request.system == "linux"
        and not host.endswith("NOTFOUND")
        and not _same_file(host, request.compiler.cuda_host)
    ):
        text = f"nvcc's host compiler is `{host}`, not `{request.compiler.cuda_host}`"
        yield _finding("cuda-host", State.FAIL, text, "nvcc refuses compilers newer than it knows")


def _nvcc(result: CMakeResult) -> str | None:
    found = result.cache.get("CUDA_NVCC_EXECUTABLE")
    return found if found and not found.endswith("NOTFOUND") else None


def _architectures(request: BuildRequest, result: CMakeResult) -> Iterable[Finding]:
    if request.cuda is None or not request.arch_list:
        return
    wanted = set(request.gpu_targets)
    if not result.gpu_flags:
        yield _finding(
            "architectures",
            State.FAIL if not result.cuda_objects else State.UNVERIFIED,
            "no file is compiled for a GPU",
        )
        return
    flags = [set(map(Target.parse, names)) for names in result.gpu_flags]
    lost = sorted({target for each in flags for target in wanted - each})
    extra = sorted({target for each in flags for target in each - wanted})
    names = ", ".join(map(str, sorted(wanted)))
    if lost:
        text = f"some or all CUDA files are not compiled for {', '.join(map(str, lost))}"
        yield _finding(
            "architectures",
            State.FAIL,
            text,
            "the wheel would not run on the card it is for",
            "look for flags or a cache that name other architectures; start again with `--clean`",
        )
    elif extra:
        text = f"CUDA files are also compiled for {', '.join(map(str, extra))}"
        yield _finding(
            "architectures", State.WARN, text, f"the plan says {names}; more architectures cost time and size"
        )
    else:
        yield _finding("architectures", State.PASS, f"all {result.cuda_objects} CUDA objects are for {names}")


def _cudnn(request: BuildRequest, result: CMakeResult) -> Iterable[Finding]:
    if request.cudnn is None:
        return
    on = result.get("USE_CUDNN")
    if on is not None and switch(on) is False:
        yield _finding(
            "cudnn", State.FAIL, "cuDNN is off", "CMake did not find the cuDNN of the plan and went on without"
        )
        return
    said = Version.find(result.summary.get("cuDNN version", "") or result.cache.get("CUDNN_VERSION", ""))
    library = result.cache.get("CUDNN_LIBRARY") or result.cache.get("CUDNN_LIBRARY_PATH", "")
    if (
        said
        and request.cudnn.version
        and not said.starts_with(Version(".".join(request.cudnn.version.text.split(".")[:2])))
    ):
        yield _finding(
            "cudnn",
            State.FAIL,
            f"the cuDNN is {said}, not {request.cudnn.version}",
            "another cuDNN may hold no code for the card",
        )
    elif said:
        yield _finding("cudnn", State.PASS, f"cuDNN is on ({said})")
    else:
        yield _finding("cudnn", State.UNVERIFIED, f"cuDNN is on, of an unknown version (`{library}`)")


def _blas(options: Options, result: CMakeResult) -> Iterable[Finding]:
    wanted = options.value("BLAS")
    said = result.summary.get("BLAS_INFO") or result.summary.get("BLAS") or result.cache.get("BLAS")
    if wanted is None or said is None:
        return
    names = {"openblas": "open", "mkl": "mkl", "atlas": "atlas", "eigen": "eigen", "generic": "generic"}
    want = names.get(wanted.lower(), wanted.lower())
    if want in said.lower():
        yield _finding("blas", State.PASS, f"BLAS is {said}")
    else:
        yield _finding(
            "blas",
            State.FAIL,
            f"BLAS is {said or 'none'}, not {wanted}",
            "linear algebra on the CPU would be slow or missing",
        )


def _threads(result: CMakeResult) -> Iterable[Finding]:
    if result.one_core:
        yield _finding(
            "mkl-threads",
            State.FAIL,
            f"MKL would run on one core: CMake took `{result.one_core}`",
            "FindMKL found no OpenMP of Intel's and fell back to mkl_sequential",
            "install Intel's OpenMP beside MKL (oneAPI's compiler runtime), or let pip bring both: leave oneAPI out",
        )


def _options(options: Options, result: CMakeResult) -> Iterable[Finding]:
    """Every switch that was set, held against what the project says of it."""
    checked = 0
    for option in options.resolved:
        want, said = switch(option.value), result.get(option.name)
        if want is None or said is None or option.name in ("USE_CUDA", "USE_CUDNN"):
            continue
        have = switch(said)
        if have is None:
            continue
        checked += 1
        if have != want:
            text = f"{option.name} is {said}, not {option.cmake_value}"
            state = State.FAIL if option.origin == "user" and want else State.WARN
            yield _finding(
                f"option-{option.name}", state, text, option.why, "the configure log says why it was changed"
            )
    if checked:
        yield _finding("options", State.PASS, f"{checked} options are read back from CMake")


def _same_file(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return Path(one).resolve() == Path(other).resolve() or Path(one).samefile(other)
    except OSError:
        return False


def _finding(id: str, state: State, found: str, why: str = "", fix: str | None = None) -> Finding:
    return Finding(id=id, state=state, found=found, why=why, fix=Fix(text=fix) if fix else None, source=_SOURCE)
