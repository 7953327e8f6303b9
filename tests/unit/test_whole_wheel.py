"""What broke when a whole torch for an old card was built and run for the first time, each as a small real thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rekindle.build import overview
from rekindle.build.configure import request as requests
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.formats.package import open_package
from rekindle.machine.model import FoundCompiler
from rekindle.model.card import Capability, Target
from rekindle.wheels.closure.linkage import findings
from rekindle.wheels.closure.search_path import closure
from rekindle.wheels.inspect.identity import read_binaries
from rekindle.wheels.verify import ask_torch_checks, stand_in, stand_in_run, trial
from rekindle.wheels.verify.trial import OperatorResult
from support import small_wheels
from support.compiled import Compiler

K40 = Target(capability=Capability(3, 5), ptx=True)
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs gcc and the loader of Linux")


@linux
@pytest.mark.parametrize(("asked", "state"), [("cuCtxGetCurrent", State.PASS), ("cudnnCreate", State.FAIL)])
def test_functions_of_the_driver_are_not_missing(tmp_path: Path, asked: str, state: State) -> None:
    """libcaffe2_nvrtc.so links libcuda.so.1, which is on no machine but the user's; its functions have no version."""
    root = tmp_path / "built"
    root.mkdir()
    gcc = Compiler(root, "")
    driver = gcc.build("elsewhere/libcuda.so.1", offers=[asked], options=["-Wl,-soname,libcuda.so.1"])
    beside = gcc.build("torch/lib/libc10.so", offers=["own"], options=["-Wl,-soname,libc10.so"])
    options = ["-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", str(driver), str(beside)]
    module = gcc.build("torch/lib/libcaffe2_nvrtc.so", offers=["load"], wants=[asked, "own"], options=options)
    files = {
        "torch/__init__.py": b"",
        "torch/lib/libcaffe2_nvrtc.so": module.read_bytes(),
        "torch/lib/libc10.so": beside.read_bytes(),
        "torch-1.13.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 1.13.1\n",
        "torch-1.13.1.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
    }
    with open_package(small_wheels.make(tmp_path, files, name="torch-1.13.1-py3-none-any.whl")) as opened:
        followed = closure(read_binaries(opened), torch=True)
    assert followed is not None
    found = findings(followed)
    assert [one.state for one in found] == [state], found


@linux
@pytest.mark.parametrize(("linked", "state"), [(False, State.WARN), (True, State.FAIL)])
def test_a_library_that_nothing_loads_lacks_nothing(tmp_path: Path, linked: bool, state: State) -> None:
    """torch 2.15.0 brings a libgfortran that none of its files needs, without the libquadmath that this one needs."""
    root = tmp_path / "built"
    root.mkdir()
    gcc = Compiler(root, "")
    quad = gcc.build("elsewhere/libquadmath.so.0", offers=["quad"], options=["-Wl,-soname,libquadmath.so.0"])
    options = ["-Wl,--no-as-needed", str(quad), "-Wl,-soname,libgfortran.so.5"]
    fortran = gcc.build("torch/lib/libgfortran.so.5", offers=["etime"], wants=["quad"], options=options)
    needs = ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", str(fortran)] if linked else []
    torch = gcc.build("torch/lib/libtorch_cpu.so", options=["-Wl,-rpath,$ORIGIN", *needs])
    files = {
        "torch/__init__.py": b"",
        "torch/lib/libgfortran.so.5": fortran.read_bytes(),
        "torch/lib/libtorch_cpu.so": torch.read_bytes(),
        "torch-2.15.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n",
        "torch-2.15.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
    }
    with open_package(small_wheels.make(tmp_path, files, name="torch-2.15.0-py3-none-any.whl")) as opened:
        followed = closure(read_binaries(opened), torch=True)
    assert followed is not None
    missing = [one for one in findings(followed) if "libquadmath.so.0" in one.found]
    assert [one.state for one in missing] == [state], missing


def test_a_compiler_may_be_asked_for_by_any_of_its_names() -> None:
    found = FoundCompiler(
        kind="gcc", path="/usr/bin/g++", version=Version("11.3.0"), default=True, also=("/usr/bin/g++-11",)
    )
    for name, path in (("g++-11", "/usr/bin/g++-11"), ("/usr/bin/g++-11", "/usr/bin/g++-11"), ("g++", "/usr/bin/g++")):
        called = requests._called(found, name)
        assert called is not None and called.path == path
    assert requests._called(found, "g++-12") is None


def _ran(result: str, why: str = "") -> stand_in_run.RunResult:
    one = OperatorResult(op="add", dtype="float32", part="forward", result=result, why=why)
    found = trial.Operators(
        table=1,
        passed=int(result == "passed"),
        failed=int(result == "failed"),
        skipped={},
        crashed=0,
        not_reached=0,
        results=(one,),
    )
    return stand_in_run.RunResult(operators=found)


def test_a_torch_that_says_nothing_without_code_is_a_control_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.13.1 with lazy loading: no kernel, no error, zeros. Wrong without the compiler and right with it."""
    silent = _ran("failed", "differs: Tensor-likes are not close!")
    monkeypatch.setattr(stand_in_run, "run", lambda *_, **__: silent)
    setup = stand_in_run.StandInSetup(python=Path(sys.executable), folder=Path(os.devnull).parent)
    monkeypatch.setattr(stand_in_run, "variables", lambda *_, **__: {})
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    control, ran = stand_in_run.without_jit(setup)
    assert control.state is State.UNVERIFIED
    said = stand_in._control(control, ran, _ran("passed"))
    assert said.state is State.PASS and "1 comparisons" in said.found
    assert stand_in._control(control, ran, _ran("failed")).state is State.UNVERIFIED


FAKE_DRIVER = """
static int loaded;
int cuInit(unsigned flags) { return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &loaded; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuModuleLoadData(void **module, const char *image) { *module = &loaded; return image[0] == 'x' ? 218 : 0; }
int cuModuleUnload(void *module) { return 0; }
"""


@linux
@pytest.mark.parametrize(("data", "state"), [(b"aaaabbbb", State.PASS), (b"aaaaxbbb", State.FAIL)])
def test_every_container_is_given_to_the_driver_once(tmp_path: Path, data: bytes, state: State) -> None:
    (tmp_path / "cuda.c").write_text(FAKE_DRIVER, encoding="utf-8")
    driver = ["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")]
    subprocess.run(driver, check=True, timeout=60)
    library = tmp_path / "libtorch_cuda.so"
    library.write_bytes(data)
    places = [stand_in_run.PtxPlace(file=library, offset=start, size=4) for start in (0, 4)]
    plan = stand_in_run.WarmPlan(python=Path(sys.executable), folder=tmp_path, processes=2, seconds=30.0)
    done = stand_in_run.warm(plan, places, {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert done.problem is None
    assert done.compiled + sum(done.errors.values()) == 2
    assert stand_in_run.warm_line(done, K40).state is state


def test_containers_that_were_not_tried_are_not_a_pass() -> None:
    assert (
        stand_in_run.warm_line(stand_in_run.warm_counts([{"error": 0, "seconds": 1.0}, {"left": 3}]), K40).state
        is State.UNVERIFIED
    )
    assert stand_in_run.warm_line(stand_in_run.warm_counts([]), K40).state is State.UNVERIFIED
    assert stand_in_run.warm_line(stand_in_run.warm_counts([{"problem": "no driver"}]), K40).state is State.UNVERIFIED


FAKE_NVRTC = """
#include <string.h>
/* As NVRTC 11.8: what was once compiled to machine code keeps it, also after another compile to PTX alone. */
int nvrtcCompileProgram(void *program, int count, const char *const *options) { return 0; }
int nvrtcGetCUBINSize(void *program, unsigned long *size) { *size = 4; return 0; }
int nvrtcGetCUBIN(void *program, char *out) { strcpy(out, "ELF"); return 0; }
int nvrtcGetPTXSize(void *program, unsigned long *size) { *size = 5; return 0; }
int nvrtcGetPTX(void *program, char *out) { strcpy(out, ".ptx"); return 0; }
"""
ASKS_BY_NAME = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void *library = dlopen("libnvrtc.so.11.2", RTLD_LAZY | RTLD_LOCAL);
  int (*compile)(void *, int, const char *const *) = dlsym(library, "nvrtcCompileProgram");
  int (*measure)(void *, unsigned long *) = dlsym(library, "nvrtcGetCUBINSize");
  int (*cubin)(void *, char *) = dlsym(library, "nvrtcGetCUBIN");
  const char *options[] = {"--gpu-architecture=sm_35"};
  char out[8] = "";
  unsigned long size = 0;
  if (dlsym(library, "nvrtcNoSuchThing")) return 3;
  compile(0, 1, options);
  measure(0, &size);
  cubin(0, out);
  printf("%lu %s\\n", size, out);
  return 0;
}
"""


@linux
def test_the_mask_reaches_an_nvrtc_that_is_asked_by_name(tmp_path: Path) -> None:
    """torch opens libnvrtc itself and takes its functions by dlsym: a preloaded function of that name is passed by."""
    for name, text in (("nvrtc.c", FAKE_NVRTC), ("asks.c", ASKS_BY_NAME)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    for words in (
        ["-shared", "-fPIC", "-o", "libnvrtc.so.11.2", "nvrtc.c"],
        ["-o", "asks", "asks.c", "-ldl"],
        ["-O1", "-shared", "-fPIC", "-o", "mask.so", str(stand_in_run.MASK_SOURCE), "-ldl"],
    ):
        subprocess.run(["gcc", *words], check=True, cwd=tmp_path, timeout=60)
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "REKINDLE_MASK": "major=3 minor=5"}
    env |= {"LD_PRELOAD": str(tmp_path / "mask.so"), "REKINDLE_MASK_LOG": str(tmp_path / "log")}
    said = subprocess.run([tmp_path / "asks"], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == "5 .ptx", "the real card cannot load the old one's machine code"
    assert (tmp_path / "log").read_text(encoding="utf-8").splitlines() == ["nvrtc compiled"]


def test_what_the_driver_compiled_can_be_kept(tmp_path: Path) -> None:
    setup = stand_in_run.StandInSetup(python=Path(sys.executable), folder=tmp_path, jit_cache=tmp_path / "kept" / "jit")
    assert stand_in_run.variables(setup)["CUDA_CACHE_PATH"] == str(tmp_path / "kept" / "jit")
    assert (tmp_path / "kept" / "jit").is_dir()
    assert json.dumps(stand_in_run.variables(setup)), "plain text"


@pytest.mark.skipif(os.name == "nt", reason="a folder `/b` is Linux's")
def test_a_short_build_folder_does_not_eat_other_paths(tmp_path: Path) -> None:
    text = overview.without_places("/usr/bin/g++-11 in /b/env, logs in `/b`, not /bin and not /b2", Path("/b"))
    assert text == "/usr/bin/g++-11 in WORK/env, logs in `WORK`, not /bin and not /b2"


@pytest.mark.parametrize(("said", "right"), [(5 - 2j, True), (0j, False)])
def test_a_complex_dot_product_of_zero_is_caught(said: complex, right: bool) -> None:
    """The first whole wheel: OpenBLAS named to CMake, and every complex dot product on the CPU was 0."""
    torch = SimpleNamespace(tensor=lambda values, dtype: values, dot=lambda a, b: said, complex64=None)
    if right:
        ask_torch_checks.complex_dot(torch)
    else:
        with pytest.raises(ask_torch_checks.Wrong, match="BLAS_USE_CBLAS_DOT"):
            ask_torch_checks.complex_dot(torch)
