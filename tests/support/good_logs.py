"""Complete logs of real work that went well: what a diagnosis must not find a cause in.

Made here, once, and kept in the test cache: C extensions built from their source distributions (verbose, so that every
compiler command and warning is in), CMake configures and builds with both generators, pip installs, nvcc compiles,
a git clone. `python tests/support/good_logs.py` makes them and says how many there are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.artefacts import cache, made_once

# Small C and C++ extensions; each with its own way of probing the system.
_SDISTS = (
    "markupsafe==3.0.2", "pyyaml==6.0.2", "psutil==6.1.0", "wrapt==1.17.0", "msgpack==1.1.0", "ujson==5.10.0",
    "greenlet==3.1.1", "cffi==1.17.1", "regex==2024.11.6", "kiwisolver==1.4.7", "simplejson==3.19.3", "xxhash==3.5.0",
    "zstandard==0.23.0", "bitarray==3.0.0", "lz4==4.3.3", "pycryptodomex==3.21.0", "multidict==6.1.0",
    "frozenlist==1.5.0", "yarl==1.17.1", "propcache==0.2.0", "immutables==0.21", "setproctitle==1.3.4",
    "ninja==1.11.1.1", "contourpy==1.3.1",
)  # fmt: skip
_WHEELS = ("requests", "numpy", "jinja2", "sympy", "networkx", "filelock", "rich", "pefile", "pyelftools", "tomli")
_CXX = """\
#include <cstdio>
#warning "error handling is not finished: this may fail"
[[deprecated("use better_error() instead")]] int old_error(int unused) { int fatal_error; return 0; }
int main() { return old_error(1); }
"""
_CU = """\
#include <cstdio>
__device__ int unused_error() { int failed = 3; return 1; }
__global__ void error_kernel(float *x, int n) { int i = threadIdx.x; float missing; if (i < n) x[i] = x[i] * 2.0f; }
int main() { error_kernel<<<1, 1>>>(nullptr, 0); return 0; }
"""


def folder() -> Path:
    return cache() / "good-logs"


def good_logs(*, make: bool = True) -> list[Path]:
    """The logs that there are; first made, or completed where the making was broken off."""
    if make:
        made_once(folder(), _make)
    return sorted(folder().glob("*.log"))


def _make(_: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(max_workers=2) as pool:
        work = Path(temporary)
        for name, text in (*_cmake(work), *_nvcc(work), *_git(work)):
            _keep(name, text)
        for result in [pool.submit(_by_pip, name, command, work) for name, command in _pip_commands(work)]:
            result.result()


def _pip_commands(work: Path) -> Iterator[tuple[str, list[str]]]:
    for name in _WHEELS:
        yield f"pip-install-{name}", [*_PIP, "install", "--target", str(work / name), name]
    for name in _SDISTS:
        plain = name.partition("==")[0]
        command = [*_PIP, "wheel", "-v", "--no-deps", "--no-cache-dir", "--no-binary", plain, name]
        yield f"sdist-{plain}", [*command, "-w", str(work / "built")]


def _by_pip(name: str, command: Sequence[str], work: Path) -> None:
    if not (folder() / f"{name}.log").exists():
        for each, text in _ran(name, command, work):
            _keep(each, text)


_PIP = (sys.executable, "-m", "pip")


def _cmake(work: Path) -> Iterator[tuple[str, bytes]]:
    headers = ["unistd.h", "windows.h", "sys/sysctl.h", "execinfo.h", "no_such_header.h", "malloc.h", "xlocale.h"]
    functions = ["fork", "CreateProcess", "pthread_setname_np", "strlcpy", "getauxval", "no_such_function", "mmap"]
    source = work / "probes"
    source.mkdir()
    lines = ["cmake_minimum_required(VERSION 3.16)", "project(probes C CXX)"]
    lines += ["include(CheckIncludeFile)", "include(CheckFunctionExists)", "include(CheckCXXSourceCompiles)"]
    lines += [f"check_include_file({name} HAVE_{i}_H)" for i, name in enumerate(headers)]
    lines += [f"check_function_exists({name} HAVE_{name.upper()})" for name in functions]
    lines += ['check_cxx_source_compiles("#error no\\nint main(){}" WORKS_NOT)', "find_package(CUDAToolkit)"]
    lines += ["find_package(MKL)", "find_package(OpenMP)", "find_package(Threads)", "find_package(BLAS)"]
    lines += ['message(WARNING "the fatal_error library was not found: error reports are disabled")']
    lines += ["add_executable(fatal_error main.cpp)", "add_library(failed STATIC main.cpp)"]
    (source / "CMakeLists.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (source / "main.cpp").write_text(_CXX, encoding="utf-8")
    for generator in ("Ninja", "Unix Makefiles"):
        if generator == "Ninja" and not shutil.which("ninja"):
            continue
        tag = generator.split()[-1].lower()
        build = str(work / f"b-{tag}")
        yield from _ran(f"cmake-configure-{tag}", ["cmake", "-S", str(source), "-B", build, "-G", generator], work)
        yield from _ran(f"cmake-build-{tag}", ["cmake", "--build", build, "--verbose"], work)
        yield from _ran(f"cmake-again-{tag}", ["cmake", "--build", build], work)
        yield from _ran(f"cmake-trace-{tag}", ["cmake", "--log-level=DEBUG", "-S", str(source), "-B", build], work)


def _nvcc(work: Path) -> Iterator[tuple[str, bytes]]:
    if not shutil.which("nvcc"):
        return
    (work / "k.cu").write_text(_CU, encoding="utf-8")
    target = str(work / "k.o")
    for tag, options in {
        "plain": ["-Xptxas", "-v"],
        "dry": ["--dryrun"],
        "verbose": ["-v", "-Xcompiler", "-Wall", "-Wno-deprecated-gpu-targets"],
    }.items():
        yield from _ran(f"nvcc-{tag}", ["nvcc", "-c", str(work / "k.cu"), "-o", target, *options], work)


def _git(work: Path) -> Iterator[tuple[str, bytes]]:
    here = Path(__file__).parents[2]
    yield from _ran("git-clone", ["git", "clone", "--progress", str(here), str(work / "clone")], work)


def _ran(name: str, command: Sequence[str], work: Path) -> Iterator[tuple[str, bytes]]:
    """Only what ended well is a log of success."""
    environ = {
        **os.environ,
        "MAKEFLAGS": "-j2",
        "CMAKE_BUILD_PARALLEL_LEVEL": "2",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=work, env=environ, timeout=900, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == 0:
        yield name, done.stdout


def _keep(name: str, text: bytes) -> None:
    folder().mkdir(parents=True, exist_ok=True)
    (folder() / f"{name}.log").write_bytes(text)


if __name__ == "__main__":
    print(f"{len(good_logs())} logs of work that went well in {folder()}")
