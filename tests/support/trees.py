"""Small source trees for the tests: a few lines each, with the release and path they stand for."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from support.artefacts import unverified

# tools/build_pytorch_libs.py of v1.13.1, lines 7 and 34 to 38.
VCVARS_1_13 = """\
from setuptools import distutils  # type: ignore[import]


def _overlay_windows_vcvars(env: Dict[str, str]) -> Dict[str, str]:
    vc_arch = "x64" if IS_64BIT else "x86"

    vc_env: Dict[str, str] = distutils._msvccompiler._get_vc_env(vc_arch)
    # Keys in `_get_vc_env` are always lowercase.
"""
# The first lines of CMake files of v1.13.1.
CMAKE_1_13 = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.13 FATAL_ERROR)\n",
    "aten/src/ATen/CMakeLists.txt": "cmake_minimum_required(VERSION 3.0 FATAL_ERROR)\n",
    "modules/rocksdb/CMakeLists.txt": "if(NOT A)\n  cmake_minimum_required(VERSION 3.0 FATAL_ERROR)\nendif()\n",
    "torch/lib/libshm/CMakeLists.txt": (
        "project(libshm C CXX)\ncmake_minimum_required(VERSION 2.8.12 FATAL_ERROR)\ncmake_policy(VERSION 2.8.12)\n"
    ),
    "cmake/Dependencies.cmake": "# RPATH stuff here.\n",
}

# third_party/flatbuffers of 1.11 to 2.0, the member that clang and Intel's compilers refuse.
FLATBUFFERS = {
    "third_party/flatbuffers/include/flatbuffers/stl_emulation.h": (
        "  pointer const data_;\n  const size_type count_;\n"
    )
}


def pytorch(root: Path, version: str = "1.13.0a0") -> Path:
    """A tree that the catalogue takes for PyTorch 1.13: three CMake files below 3.5, and the distutils call."""
    write(root, {"version.txt": f"{version}\n", "tools/build_pytorch_libs.py": VCVARS_1_13, **CMAKE_1_13})
    return root


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode("utf-8"))


def link(path: Path, target: Path, *, to_folder: bool = False) -> None:
    """A symbolic link, or no test: Wine says that it made one and did not, and on Windows not every account may."""
    try:
        path.symlink_to(target, target_is_directory=to_folder)
    except OSError:
        unverified("this account may not make symbolic links")
    if not path.is_symlink():
        unverified("this system says it made a symbolic link and did not (Wine)")


def fingerprint(root: Path) -> dict[str, str]:
    """Every file, folder and link below `root` with its mode and its bytes."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder, name)
            status = path.lstat()
            body = str(path.readlink()) if path.is_symlink() else path.read_bytes().hex() if path.is_file() else ""
            digest = hashlib.sha256(body.encode()).hexdigest()[:16]
            found[path.relative_to(root).as_posix()] = f"{status.st_mode:o} {digest}"
    return found
