"""Matrices drawn by lot, built for real: as many wheels as were announced lie on the shelf, every time.

`REKINDLE_MATRICES` is how many are drawn. Projects of setuptools and of meson-python are extensions of a small torch,
those of CMake and of scikit-build-core are built by themselves.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from rekindle.compat.companion import release_for
from rekindle.fleet import announcement
from rekindle.machine.probe import look
from support.artefacts import unverified
from support.command import rekindle_command
from support.cuda import project
from support.fleets import pebble
from support.houses import SYMBOL, House, needs_cuda_13

TORCH, CUDA = "2.11.0", "13.0"
SEEDS = range(int(os.environ.get("REKINDLE_MATRICES", "2")))
MODULE = f"""#include <Python.h>
int {SYMBOL}(void);
static struct PyModuleDef made = {{PyModuleDef_HEAD_INIT, "_C"}};
PyMODINIT_FUNC PyInit__C(void) {{ {SYMBOL}(); return PyModule_Create(&made); }}
"""
KERNEL = "__global__ void twice(float* x) { x[0] *= 2; }\n"
SETUPTOOLS = """from pathlib import Path
from setuptools import setup, Extension
import os, subprocess, torch
lib = str(Path(torch.__file__).parent / "lib")
numbers = os.environ["TORCH_CUDA_ARCH_LIST"].replace(".", "").split(";")
flags = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in numbers]
subprocess.run(["nvcc", *flags, "-Xcompiler", "-fPIC", "-c", "k.cu", "-o", "k.o"], check=True)
made = Extension("anvil._C", ["c.c"], extra_objects=["k.o"], library_dirs=[lib], runtime_library_dirs=[lib],
                 libraries=["c10"])
setup(name="anvil", version="1.0", packages=["anvil"], ext_modules=[made])
"""
MESON = """project('bellows', 'c', version: '1.0')
py = import('python').find_installation(pure: false)
lib = run_command(py, '-c', 'import torch; print(torch.__path__[0] + "/lib")', check: true).stdout().strip()
archs = run_command(py, '-c', 'import os; print(os.environ["TORCH_CUDA_ARCH_LIST"].replace(".", ""))',
  check: true).stdout().strip()
flags = []
foreach each : archs.split(';')
  flags += ['-gencode=arch=compute_' + each + ',code=sm_' + each]
endforeach
k = custom_target(input: 'k.cu', output: 'k.o',
  command: ['nvcc', flags, '-Xcompiler', '-fPIC', '-c', '@INPUT@', '-o', '@OUTPUT@'])
py.extension_module('_C', 'c.c', k, install: true, subdir: 'bellows', link_args: ['-L' + lib, '-lc10'],
  install_rpath: lib)
py.install_sources('bellows/__init__.py', subdir: 'bellows', pure: false)
"""
PYPROJECT = """[build-system]
requires = ["meson-python"]
build-backend = "mesonpy"
[project]
name = "bellows"
version = "1.0"
"""


def extension(folder: Path, name: str) -> str:
    (folder / name / name).mkdir(parents=True)
    texts = {"c.c": MODULE, "k.cu": KERNEL, f"{name}/__init__.py": ""}
    texts |= {"setup.py": SETUPTOOLS} if name == "anvil" else {"meson.build": MESON, "pyproject.toml": PYPROJECT}
    for file, text in texts.items():
        (folder / name / file).write_text(text, encoding="utf-8")
    return f'[projects.{name}]\nsource = "{name}"\ndisk_gb = 0.1\nmemory_gb = 0.5\n'


def drawn(folder: Path, seed: int) -> tuple[Path, int]:
    """A matrix of two or three of the four kinds, and the number of wheels that it is for."""
    lot = random.Random(seed)
    found = [each for each in announcement.pythons_here(look()) if int(each.partition(".")[2]) >= 10]
    if not found:
        unverified("there is no Python of 3.10 or newer on PATH that makes environments")
    pythons = lot.sample(sorted(found), min(len(found), lot.randint(1, 3)))
    apart, together = lot.sample(["pebble", "ember"], lot.randint(1, 2)), [["anvil", "bellows"][seed % 2]]
    lines = [extension(folder, name) for name in together]
    if "pebble" in apart:
        lines.append(pebble(folder, "pebble"))
    if "ember" in apart:
        shutil.copytree(project("ember"), folder / "ember")
        lines.append('[projects.ember]\nbuild = "ember/build.toml"\ndisk_gb = 0.1\nmemory_gb = 0.5\n')
    cards = lot.sample(["9.0", "8.6", "7.5"], lot.randint(1, 2))
    told = [f"python = {json.dumps(pythons)}", f'arch = "{os.uname().machine}"', f"project = {json.dumps(apart)}"]
    told += ['cuda = "cpu"', "configured_index = true", "[[include]]", f"project = {json.dumps(together)}"]
    told += [f'torch = "{TORCH}"', f'cuda = "{CUDA}"', f"gpu = {json.dumps([';'.join(cards)])}"]
    matrix = folder / "matrix.toml"
    matrix.write_text("\n".join([*told, *lines]), encoding="utf-8")
    # What plain CMake installs is for every Python.
    each = len(pythons)
    return matrix, each * len(together) + each * ("ember" in apart) + ("pebble" in apart)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="UNVERIFIED: a compiler is on PATH on Linux only")
@pytest.mark.parametrize("seed", SEEDS)
def test_as_many_wheels_as_were_announced(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_cuda_13()
    if os.uname().machine != "x86_64":
        unverified("a plan for aarch64 pins the one file of this torch by its hash, and a stand-in is not that file")
    house = House(tmp_path)
    house.torch(f"{TORCH}+cu130", CUDA, targets=("sm_75", "sm_86", "sm_90"))
    for name in ("torchvision", "torchaudio"):
        house.companion(name, f"{release_for(name, TORCH)}+cu130")
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nfind-links = {house.wheels}\n", encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path / "cache"))
    matrix, wanted = drawn(tmp_path, seed)
    words = (str(matrix), "--shelf", str(tmp_path / "shelf"), "--json")
    planned = rekindle_command("fleet", "plan", *words)
    assert planned.code == 0, planned.out + planned.err
    assert sum(job["state"] == "build" for job in planned.json()["jobs"]) == wanted, planned.out
    seen = rekindle_command("fleet", "run", *words)
    assert seen.code == 0, matrix.read_text(encoding="utf-8") + seen.out + seen.err
    assert seen.json()["counts"] == {"done": wanted}
    shelved = {path.name for path in (tmp_path / "shelf" / "wheels").glob("*.whl")}
    assert len(shelved) == wanted, shelved
