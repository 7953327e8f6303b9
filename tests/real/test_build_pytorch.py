"""The real PyTorch 1.13.1 for the K40c: configured for sm_35 with CUDA 11.8, checked, and in part compiled.

REKINDLE_PYTORCH_SOURCE names the whole upstream tree of v1.13.1 with its submodules (`rekindle source --torch 1.13.1`).
A configure run takes two minutes on two cores, the 285 steps to c10 and the kernels twenty: REKINDLE_PYTORCH_WORK keeps
the build between runs, and a run that was cut off goes on where it stopped.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from rekindle.build.configure import cmake_result
from rekindle.formats import fatbin
from support.artefacts import unverified
from support.command import Seen, rekindle_command
from support.cuda import kepler_toolkit, machine

CUDA_OBJECTS = "caffe2/CMakeFiles/torch_cuda.dir/__/aten/src/ATen/"
OBJECTS = tuple(
    CUDA_OBJECTS + name
    for name in (
        "cuda/Sleep.cu.o",
        "native/cuda/UnaryFractionKernels.cu.o",
        "native/cuda/AbsKernel.cu.o",
        "native/cuda/FillKernel.cu.o",
    )
)


class Bench:
    def __init__(self, root: Path) -> None:
        source = os.environ.get("REKINDLE_PYTORCH_SOURCE")
        if not source or not (Path(source) / "setup.py").is_file():
            unverified("REKINDLE_PYTORCH_SOURCE names no tree of PyTorch 1.13.1")
        self.source = Path(str(source))
        self.root = root
        self.work = Path(os.environ.get("REKINDLE_PYTORCH_WORK") or root / "w")
        self.cuda = str(kepler_toolkit().version)

    def run(self, *words: str, source: Path | None = None, until: str = "check", targets: tuple[str, ...] = ()) -> Seen:
        plan = self.root / "pytorch.toml"
        lines = [
            f'source = "{source or self.source}"',
            'torch = "1.13.1"',
            f'cuda = "{self.cuda}"',
            'arch_list = "3.5"',
        ]
        lines += ['profile = "minimal"', f"targets = {list(targets)!r}", "[options]", 'USE_SYSTEM_EIGEN_INSTALL = "ON"']
        plan.write_text("\n".join(lines).replace("'", '"') + "\n", encoding="utf-8")
        more = ["--work", str(self.work), "--until", until, "--jobs", "2", "--cache", "none", "--json"]
        return rekindle_command("build", str(plan), *more, *words)

    @property
    def build(self) -> Path:
        return self.work / "s" / "build"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("pytorch"))


def findings(seen: Seen) -> dict[str, str]:
    answer: dict[str, Any] = seen.json()
    return {each["id"]: each["state"] for each in answer["findings"]}


def test_a_plan_that_switches_cuda_off_is_stopped_by_the_check(bench: Bench) -> None:
    """CMake does not find the toolkit and goes on with a warning, which is what a half-installed one does."""
    seen = bench.run("-D", "CMAKE_DISABLE_FIND_PACKAGE_CUDA=ON")
    assert seen.code == 8 and "CUDA is off" in seen.err, seen.err


def test_a_plan_that_picks_another_nvcc_is_stopped_by_the_check(bench: Bench) -> None:
    """FindCUDA finds the plan's toolkit, CMake's CUDA language another: the release does not compare the two."""
    other = next((kit for kit in machine().toolkits if kit.nvcc and kit.version and kit.version.major >= 12), None)
    if other is None or other.nvcc is None:
        unverified("no second CUDA toolkit is here")
        return
    seen = bench.run("-D", f"CMAKE_CUDA_COMPILER={other.nvcc}", "-D", f"CUDA_NVCC_EXECUTABLE={kepler_toolkit().nvcc}")
    assert seen.code == 8 and str(other.version) in seen.err, seen.err


def test_a_tree_that_loses_the_architecture_is_stopped_by_the_check(bench: Bench) -> None:
    """Somebody wrote another card's list into the CMake files by hand, and the plan's list is lost without a word."""
    copy = bench.root / "edited"
    shutil.copytree(bench.source, copy, symlinks=True, copy_function=linked, ignore=shutil.ignore_patterns(".git"))
    file = copy / "cmake" / "public" / "utils.cmake"
    text = file.read_text(encoding="utf-8")
    head = "macro(torch_cuda_get_nvcc_gencode_flag store_var)"
    assert head in text
    file.unlink()
    file.write_text(text.replace(head, f'{head}\n  set(ENV{{TORCH_CUDA_ARCH_LIST}} "5.0")'), encoding="utf-8")
    seen = bench.run(source=copy)
    assert seen.code == 8 and "not compiled for sm_35" in seen.err, seen.err


def linked(source: str, copy: str) -> None:
    """A second name instead of a second copy; Rekindle only reads it."""
    os.link(source, copy)


def test_pytorch_is_configured_for_sm_35_and_the_check_passes(bench: Bench) -> None:
    seen = bench.run("--from", "check")
    assert seen.code == 0, seen.err
    found = findings(seen)
    assert {"cuda", "nvcc", "architectures", "host-compiler", "blas", "options"} <= found.keys()
    assert {found[name] for name in ("cuda", "nvcc", "architectures", "host-compiler", "blas")} == {"PASS"}
    result = cmake_result.configured_in(bench.build)
    assert result.cuda_objects > 150
    assert set(result.gpu_flags) == {("sm_35",)}


@pytest.mark.long
def test_c10_and_four_real_kernels_compile_to_sm_35_and_nothing_else(bench: Bench) -> None:
    seen = bench.run(until="compile", targets=("c10", *OBJECTS))
    assert seen.code == 0, seen.err
    library = bench.build / "lib" / "libc10.so"
    assert library.is_file() and platform.machine() in ("x86_64", "aarch64")
    for name in OBJECTS:
        containers = fatbin.scan((bench.build / name).read_bytes())
        assert {str(target) for container in containers for target in container.targets} == {"sm_35"}, name
