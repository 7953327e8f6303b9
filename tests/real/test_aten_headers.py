"""A small program on ten of ATen's kernel headers, for 6.1 with PTX: built where there are headers and a toolkit.

Headers: a tree with what configuring writes (`REKINDLE_TORCH_TREE`; `tools/sweep.py` writes the same), or an installed
torch. It runs where there is a card that it has code for; through its PTX that is any newer one too.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from rekindle.formats import fatbin
from rekindle.machine.host import Host
from rekindle.toolchain.verify import compiler_for
from support.artefacts import unverified
from support.cuda import machine, project

# As PyTorch's own build: without them CUDA's operators of half compete with PyTorch's.
_NO_OPERATORS = ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")
_FLAGS = (
    *("-w", "--expt-relaxed-constexpr", "--expt-extended-lambda"),
    *(f"-D__CUDA_NO_{name}__" for name in _NO_OPERATORS),
)
_CODE = ("-gencode", "arch=compute_61,code=sm_61", "-gencode", "arch=compute_61,code=compute_61")
_NO_CARD = 2


def headers() -> tuple[list[Path], str]:
    """Folders to include, and the C++ standard of the release."""
    named = os.environ.get("REKINDLE_TORCH_TREE")
    if named:
        tree = Path(named)
        if (tree / "build" / "torch" / "headeronly" / "macros" / "cmake_macros.h").is_file():
            return [tree / "build" / "aten" / "src", tree / "aten" / "src", tree / "build", tree], _standard(tree)
        unverified(f"`{tree}` has not been configured: its written headers are missing")
    found = importlib.util.find_spec("torch")
    include = Path(found.origin).parent / "include" if found and found.origin else None
    if include is None or not (include / "ATen" / "native" / "cuda" / "block_reduce.cuh").is_file():
        unverified("neither a configured tree (REKINDLE_TORCH_TREE) nor a torch with CUDA's headers is here")
    assert include is not None
    return [include], "c++20" if (include / "torch" / "headeronly" / "cuda").is_dir() else "c++17"


def _standard(tree: Path) -> str:
    major, minor = (tree / "version.txt").read_text(encoding="utf-8").split(".")[:2]
    return "c++20" if (int(major), int(minor)) >= (2, 12) else "c++17"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folders, standard = headers()
    fitting = [
        (toolkit, compiler)
        for toolkit in machine().toolkits
        if toolkit.nvcc and any(str(target) == "sm_61" for target in toolkit.targets)
        if (compiler := compiler_for(Host(), toolkit))
    ]
    if not fitting:
        unverified("no CUDA toolkit here compiles for sm_61 (`rekindle toolchain install cuda==12.4`)")
    toolkit, compiler = fitting[0]
    assert toolkit.nvcc is not None
    made = tmp_path_factory.mktemp("headers") / "program"
    command = [toolkit.nvcc, "-ccbin", compiler, f"-std={standard}", *_FLAGS, *_CODE]
    command += [f"-I{folder}" for folder in folders]
    command += [str(project("aten_headers") / "program.cu"), "-o", str(made)]
    environ = {**os.environ, "PATH": f"{Path(toolkit.nvcc).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=3000)
    assert done.returncode == 0, done.stderr[-2000:]
    return made


def test_the_program_holds_code_and_ptx_for_the_card(program: Path) -> None:
    found = {str(target) for container in fatbin.scan(program.read_bytes()) for target in container.targets}
    assert {"sm_61", "compute_61"} <= found


def test_ten_headers_compute_what_the_cpu_computes(program: Path) -> None:
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode == _NO_CARD:
        unverified(f"no card here runs it: {done.stdout.strip()[:200]}")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASS") == 10
