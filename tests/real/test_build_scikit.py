"""What git ignores and a wheel of scikit-build-core: torch/lib is ignored in PyTorch's tree, and the build fills it.

PyTorch from 2.14 on is built so. Its own tree is not compiled here; a small one with the same two facts is.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from rekindle.build.configure.backends import BackendJob, ScikitBuildCore
from rekindle.build.configure.options import Options
from rekindle.build.configure.request import BuildRequest, Compiler
from rekindle.build.configure.tools import Tool, Tools
from support.artefacts import unverified

PYPROJECT = """[build-system]
requires = ["scikit-build-core>=1.0"]
build-backend = "scikit_build_core.build"
[project]
name = "torch"
version = "2.14.1"
[tool.scikit-build]
wheel.packages = ["torch"]
"""
CMAKE = """cmake_minimum_required(VERSION 3.18)
project(torch LANGUAGES CXX)
add_library(c10 SHARED c10.cpp)
install(TARGETS c10 DESTINATION torch/lib)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("scikit") / "env"
    venv.create(root, with_pip=True)
    found = root / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    words = [str(found), "-m", "pip", "install", "-q", "scikit-build-core>=1.0", "cmake", "ninja"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        unverified(f"scikit-build-core could not be installed: {done.stderr.strip()[-200:]}")
    return found


def _wheel(python: Path, root: Path, *, told: bool) -> set[str]:
    """The files of the wheel that the backend's own command makes, with what it says of torch/lib and without."""
    source = root / "source"
    (source / "torch" / "lib").mkdir(parents=True)
    (source / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (source / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    (source / "c10.cpp").write_text("int c10() { return 10; }\n", encoding="utf-8")
    (source / ".gitignore").write_text("torch/lib/\n*.so\n", encoding="utf-8")
    (source / "torch" / "__init__.py").write_text("", encoding="utf-8")
    # What earlier steps put there: a library brought from the toolkit, and one of a custom command.
    (source / "torch" / "lib" / "libcudart.so.11.0").write_bytes(b"library")
    (source / "torch" / "lib" / "libshm.so").write_bytes(b"library")
    tool = Tool(name="any", path=str(python))
    request = BuildRequest(
        source=str(source), system="linux", arch="any", python=str(python), torch="2.14.1" if told else None,
        compiler=Compiler(kind="gcc", cxx="g++", c="gcc", cuda_host="g++"),
    )  # fmt: skip
    job = BackendJob(
        request=request, options=Options(resolved=()), tools=Tools(cmake=tool, ninja=tool, python=tool, cxx=tool),
        source=str(source), build=str(root / "b"), stage=str(root / "i"), python=str(python), version="2.14.1",
    )  # fmt: skip
    for command in ScikitBuildCore().package(job, root / "out"):
        done = subprocess.run(command.args, cwd=command.cwd, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next((root / "out").glob("*.whl"))) as zipped:
        return {name for name in zipped.namelist() if name.startswith("torch/")}


@pytest.mark.long
def test_what_git_ignores_in_torch_lib_is_in_the_wheel_because_the_command_says_so(
    python: Path, tmp_path: Path
) -> None:
    lost = _wheel(python, tmp_path / "without", told=False)
    kept = _wheel(python, tmp_path / "with", told=True)
    brought = {"torch/lib/libcudart.so.11.0", "torch/lib/libshm.so"}
    assert not lost & brought
    assert brought <= kept
    # What CMake installs is there either way.
    assert "torch/lib/libc10.so" in lost & kept
