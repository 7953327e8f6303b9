"""A build with a conda environment's Python, in a prompt where conda and its compilers are activated.

No conda can be fetched here: the environment has conda's layout (`conda-meta`, no `pyvenv.cfg`) around this Python, and
the prompt has the variables that conda's package of compilers sets. What they name would spoil the build.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from support import trees
from support.artefacts import unverified
from support.command import rekindle_program
from support.cuda import project

MINOR = f"python3.{sys.version_info[1]}"
TRIPLE = "x86_64-conda-linux-gnu"


@pytest.fixture
def conda(tmp_path: Path) -> Path:
    root = tmp_path / "miniconda" / "envs" / "torch"
    (root / "lib").mkdir(parents=True)
    (root / "bin").mkdir()
    shutil.copy(Path(sys.base_prefix, "bin", MINOR), root / "bin" / MINOR)
    trees.link(root / "bin" / "python", root / "bin" / MINOR)
    trees.link(root / "lib" / MINOR, Path(sysconfig.get_path("stdlib")))
    for library in Path(sys.base_prefix, "lib").glob("libpython*"):
        trees.link(root / "lib" / library.name, library)
    files = {f"conda-meta/{MINOR.replace('python', 'python-')}.0-0_cpython.json": "{}", "conda-meta/history": ""}
    broken = "#!/bin/sh\necho conda has compiled this >&2\nexit 1\n"
    trees.write(root, {**files, "include/vector": "#error conda\n", f"bin/{TRIPLE}-c++": broken})
    (root / "bin" / f"{TRIPLE}-c++").chmod(0o755)
    return root


def activated(root: Path) -> dict[str, str]:
    """As `conda activate` leaves a prompt where the packages gcc and gxx are installed."""
    flags = f"-march=nocona -isystem {root}/include"
    link = f"-Wl,-rpath,{root}/lib -L{root}/lib"
    return {
        "CONDA_PREFIX": str(root), "CONDA_DEFAULT_ENV": "torch", "CONDA_SHLVL": "1", "CONDA_BUILD_SYSROOT": "/nowhere",
        "CC": f"{root}/bin/{TRIPLE}-cc", "CXX": f"{root}/bin/{TRIPLE}-c++", "HOST": TRIPLE,
        "CFLAGS": flags, "CXXFLAGS": flags, "CPPFLAGS": flags, "LDFLAGS": link,
        "CMAKE_PREFIX_PATH": f"{root}:{root}/{TRIPLE}/sysroot/usr",
        "CMAKE_ARGS": f"-DCMAKE_CXX_COMPILER={root}/bin/{TRIPLE}-c++ -DCMAKE_FIND_ROOT_PATH={root}",
    }  # fmt: skip


def test_its_python_builds_and_nothing_of_condas_gets_in(conda: Path, tmp_path: Path) -> None:
    shutil.copytree(project("ember"), tmp_path / "ember")
    plan = tmp_path / "ember" / "build.toml"
    text = 'source = "."\nname = "ember"\nversion = "1.0"\nbackend = "cmake"\nrequires = ["cmake", "ninja"]\n'
    plan.write_text(f'{text}python = "{conda}/bin/python"\n', encoding="utf-8")
    command, environ = rekindle_program("build", str(plan), "--work", str(tmp_path / "w"), "--cache", "none", "--json")
    environ |= {**activated(conda), "PATH": f"{conda}/bin:{environ['PATH']}", "REKINDLE_SHELF": str(tmp_path / "shelf")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if "cannot install what the build requires" in done.stderr:
        unverified(f"no package index can be reached: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert {step["state"] for step in json.loads(done.stdout)["steps"]} == {"done"}
    assert f"home = {conda}/bin" in (tmp_path / "w/env/pyvenv.cfg").read_text(encoding="utf-8")
    ninja = (tmp_path / "w/b/build.ninja").read_text(encoding="utf-8")
    assert "nocona" not in ninja and f"{conda}/lib" not in ninja
    with zipfile.ZipFile(json.loads(done.stdout)["wheel"]) as archive:
        library = archive.read("ember/lib/libember_core.so")
    assert str(conda).encode() not in library
