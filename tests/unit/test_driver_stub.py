"""A libcuda.so to link against, for kits whose packages have none."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle.core.version import Version
from rekindle.formats import elf
from rekindle.formats.access import Buffer
from rekindle.model.platform import Platform
from rekindle.toolchain import assemble, driver_stub
from rekindle.toolchain.model import KitFile, Offering
from rekindle.toolchain.store import Store

HEADER = """\
#define cuMemAlloc                          cuMemAlloc_v2
#define cuStreamWaitValue32                 __CUDA_API_PTSZ(cuStreamWaitValue32_v2)
    #define cuMemcpyHtoD                    __CUDA_API_PTDS(cuMemcpyHtoD_v2)
#define CUDA_VERSION 13000
#define cuMemHostAlloc_flags 3
/* CUresult CUDAAPI cuNotThere(void); */
// CUresult CUDAAPI cuNorThis(void);
CUresult CUDAAPI cuInit(unsigned int Flags);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
typedef void (CUDAAPI *CUasyncCallback)(int);
"""
NAMES = (
    *("cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"),
    *("cuStreamWaitValue32_v2", "cuStreamWaitValue32_v2_ptsz"),
)


def test_names_are_those_that_compiled_code_asks_for() -> None:
    assert driver_stub.names(HEADER) == NAMES


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_library_is_read_back(arch: str) -> None:
    made = driver_stub.library(NAMES, arch)
    assert elf.read(Buffer(made)).soname == "libcuda.so.1"
    assert elf.read(Buffer(made)).needed == ()
    assert set(elf.symbols(Buffer(made)).defined) == set(NAMES)
    assert made == driver_stub.library(NAMES, arch)


@pytest.mark.skipif(sys.platform != "linux", reason="ELF libraries are linked and loaded on Linux")
def test_a_program_links_against_it_and_asks_for_the_drivers_own(tmp_path: Path) -> None:
    arch = platform.machine()
    compiler = shutil.which("gcc")
    if compiler is None or not driver_stub.knows(arch):
        pytest.skip("no compiler here, or another processor")
    (tmp_path / "libcuda.so").write_bytes(driver_stub.library(NAMES, arch))
    source = "int cuInit(unsigned); int cuMemAlloc_v2(void); int main(void) { return cuInit(0) + cuMemAlloc_v2(); }"
    (tmp_path / "main.c").write_text(source, encoding="utf-8")
    command = [compiler, "main.c", "-Wl,--no-undefined", "-L.", "-lcuda", "-o", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "libcuda.so.1" in elf.read(Buffer((tmp_path / "main").read_bytes())).needed
    assert ctypes.CDLL(str(tmp_path / "libcuda.so")).cuInit(0) == 34  # CUDA_ERROR_STUB_LIBRARY


def _kit(store: Store, system: str, *more: str) -> dict[str, KitFile]:
    sha256, size = store.keep([HEADER.encode()], executable=False)
    files = {"include/cuda.h": KitFile(path="include/cuda.h", sha256=sha256, size=size)}
    files |= {path: KitFile(path=path, sha256=sha256, size=size) for path in more}
    place = Platform(system=system, arch="x86_64")
    offering = Offering(provider="index", name="cuda", version=Version("13.0"), place=place, layout="wheel", parts=())
    return {file.path: file for file in assemble.written(store, offering, files)}


def test_a_kit_of_wheels_gets_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = _kit(store, "linux", "lib/libcudart.so.13")["lib/stubs/libcuda.so"]
    data = store.object(made.sha256, executable=False).read_bytes()
    assert (len(data), elf.read(Buffer(data)).soname) == (made.size, "libcuda.so.1")


@pytest.mark.parametrize(("system", "has"), [("linux", "lib64/stubs/libcuda.so"), ("windows", "lib/x64/cuda.lib")])
def test_a_kit_with_one_and_a_kit_for_windows_keep_what_they_have(tmp_path: Path, system: str, has: str) -> None:
    assert not [path for path in _kit(Store(tmp_path), system, has) if "stubs" in path]
