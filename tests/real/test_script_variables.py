"""Every variable that a Windows build sets, held against the real trees: PyTorch reads it, or we say who does.

REKINDLE_PYTORCH_GIT names a repository of PyTorch with its tags; nothing in it is run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest

from rekindle.build.configure import environment, options, request
from rekindle.build.configure.environment import Action
from rekindle.core.version import Version
from rekindle.knowledge.cuda import libraries
from rekindle.machine.snapshot import load
from rekindle.source import git
from support.artefacts import unverified

READY = Path(__file__).resolve().parents[1] / "machines" / "k40c-ready-windows.json"
STACKS = [
    ("1.12.1", "11.4", "3.5", "fast"),
    ("1.12.1", "11.4", "3.7", "compat"),
    ("2.0.1", "11.7", "3.5", "fast"),
    ("2.0.1", "11.7", "3.7", "minimal"),
    ("2.7.1", "11.8", "3.5", "fast"),
    ("2.7.1", "11.8", "3.7", "compat"),
]
OTHERS = {
    "MSSdk": "setuptools' distutils",
    "PYTHONNOUSERSITE": "Python",
    "PYTHONUTF8": "Python",
    "TEMP": "Windows",
    "TMP": "Windows",
    "VSLANG": "cl and link",
    "GIT_CEILING_DIRECTORIES": "git",
    "CMAKE_NINJA_FORCE_RESPONSE_FILE": "CMake, to which setup.py hands on CMAKE_*",
    "CMAKE_GENERATOR": "CMake",
    "CMAKE_EXPORT_COMPILE_COMMANDS": "CMake",
    "CUDACXX": "CMake",
}


def repository() -> Path:
    named = os.environ.get("REKINDLE_PYTORCH_GIT")
    if not named or not git.is_git_dir(Path(named)):
        unverified("REKINDLE_PYTORCH_GIT names no repository of PyTorch")
    return Path(str(named))


def reads(commit: str, pattern: str) -> bool:
    """Whether a file of the tree that decides anything says it."""
    places = ["*.py", "*.cmake", "*CMakeLists.txt", "*.in"]
    found = git.call(["grep", "-l", "-E", "-e", pattern, commit, "--", *places], objects=repository())
    return bool(found.out.strip())


@pytest.mark.parametrize(("torch", "cuda", "arch", "profile"), STACKS)
def test_the_tree_reads_what_the_script_sets(torch: str, cuda: str, arch: str, profile: str) -> None:
    commit = git.tag_of(repository(), f"v{torch}")
    if commit is None:
        unverified(f"the repository has no tag v{torch}")
        return
    plain = request.resolve(request.BuildFile(torch=torch, arch_list="", profile=profile), load(READY))
    wanted = msgspec.structs.replace(
        plain,
        arch_list=arch,
        cuda=request.Cuda(root="C:\\cuda", nvcc="C:\\cuda\\bin\\nvcc.exe", version=Version(cuda)),
        cudnn=request.BuildCudnn(root="C:\\cudnn", version=Version("8.7.0")),
        mkl=None,
    )
    made = environment.compute(
        wanted,
        options.resolve(wanted).resolved,
        places=environment.BuildPlaces(temp="C:\\t", tools="C:\\e"),
        version="1",
    )
    names = {change.name for change in made.changes if change.action is Action.SET} - set(OTHERS)
    # torch/__init__.py puts this name together: 'CUDA_PATH_V' + '11_4'.
    patterns = {name: "CUDA_PATH_V" if name.startswith("CUDA_PATH_V") else rf"\b{re.escape(name)}\b" for name in names}
    unread = sorted(name for name, pattern in patterns.items() if not reads(commit, pattern))
    assert unread == [], f"nothing in v{torch} reads them"
    assert len(names) > 20


@pytest.mark.parametrize("torch", sorted({stack[0] for stack in STACKS}))
def test_the_loader_looks_where_the_tables_say(torch: str) -> None:
    commit = git.tag_of(repository(), f"v{torch}")
    if commit is None:
        unverified(f"the repository has no tag v{torch}")
        return
    text = git.checked(["show", f"{commit}:torch/__init__.py"], objects=repository(), doing="read the loader")
    for place in libraries.loader_places(torch):
        for word in re.findall(r"NVTOOLSEXT_PATH|CUDA_PATH_V|Library|NvToolsExt|cudart64", place.path):
            assert word in text, f"{place.id}: v{torch} does not look under {word}"
    assert "nvToolsExt64_1.dll" in text and "*.dll" in text, "it loads every DLL of torch/lib"
