"""A whole build from a bundle with the network cut off: what the plan pins is all that a build needs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle.core.errors import BadInput, FetchFailed
from rekindle.install.bundle import bundle
from rekindle.stack import plan as lock
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Wish, situation_from_options
from support.artefacts import unverified
from support.command import rekindle_program
from support.cuda import project

PYTHON = ".".join(map(str, sys.version_info[:2]))
TREE = {
    "version.txt": "2.7.1\n",
    "torch/__init__.py": "",
    "core.cpp": "int answer() { return 42; }\n",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.18)\nproject(torch LANGUAGES CXX)\n"
    "add_library(torch_cpu SHARED core.cpp)\ninstall(TARGETS torch_cpu DESTINATION torch/lib)\n",
}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `rekindle plan --bundle` collects for a source build on this kind of machine."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rn", "true"], check=False).returncode:
        unverified("the network cannot be cut off here: `unshare -rn` is not allowed")
    machine = {"x86_64": "x86_64", "aarch64": "aarch64"}[platform.machine()]
    asked = situation_from_options(["Tesla T4"], system="linux", machine=machine, python=PYTHON)
    verdict = resolve(asked, Wish(torch="2.7.1", profile="minimal"))
    route = next(each for each in verdict.routes if each.route is RouteKind.SOURCE_BUILD)
    folder = tmp_path_factory.mktemp("bundle")
    try:
        bundle(msgspec.structs.replace(verdict, recommended=route), folder)
    except FetchFailed as error:
        unverified(f"no package index can be reached: {error.message}")
    plan = lock.read(folder / "plan.toml")
    # No CUDA and no patches: the tree below is not PyTorch's.
    lock.write(msgspec.structs.replace(plan, cuda=None, cudnn=None, arch_list=None, patches=()), folder / "plan.toml")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A few lines that are built the way PyTorch is: by a setup.py that calls CMake and Ninja."""
    root = tmp_path / "tree"
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    own = (project("spark") / "setup.py").read_text(encoding="utf-8")
    (root / "setup.py").write_text(
        own.replace('"spark"', '"torch"').replace("SPARK_BUILD", "PYTORCH_BUILD"), encoding="utf-8"
    )
    return root


def cut_off(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`rekindle` in a network of its own, which has nothing in it, with no cache and no settings of pip's."""
    command, environ = rekindle_program(*words)
    own = {name: value for name, value in environ.items() if not name.startswith("PIP_")}
    own |= {"REKINDLE_CACHE": str(tmp_path / "cache"), "REKINDLE_SHELF": str(tmp_path / "shelf")}
    own |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    return subprocess.run(["unshare", "-rn", *command], env=own, capture_output=True, text=True, check=False)


def states(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return {step["name"]: step["state"] for step in answer["steps"]}


def test_there_is_no_network_in_there() -> None:
    probe = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=3)"
    done = subprocess.run(["unshare", "-rn", sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert "Network is unreachable" in done.stderr


def test_a_plan_is_built_from_its_bundle_alone(collected: Path, tree: Path, tmp_path: Path) -> None:
    words = ["build", str(collected / "plan.toml"), "--bundle", str(collected), "--source", str(tree)]
    words += ["--work", str(tmp_path / "w"), "--cache", "none", "--jobs", "2", "--until", "repair", "--json"]
    done = cut_off(tmp_path, *words)
    assert states(done) | {"verify": "left", "shelve": "left"} == states(done)
    assert set(states(done).values()) == {"done", "left"}
    wheel = json.loads(done.stdout)["wheel"]
    assert Path(wheel).name.startswith("torch-2.7.1")
    assert "could not be checked" in done.stderr, "a tree without git is said to be unverified"
    own = (tmp_path / "w" / "env" / "bin").iterdir()
    assert {"cmake", "ninja"} <= {path.name for path in own}, "CMake and Ninja come with the list"


def test_a_project_of_another_kind_goes_all_the_way(collected: Path, tmp_path: Path) -> None:
    shutil.copytree(project("ember"), tmp_path / "ember")
    file = tmp_path / "ember" / "build.toml"
    requires = [*lock.read(collected / "plan.toml").requires]
    file.write_text(
        f'source = "."\nname = "ember"\nversion = "1.0"\nbackend = "cmake"\nrequires = {json.dumps(requires)}\n',
        encoding="utf-8",
    )
    words = ["build", str(file), "--bundle", str(collected), "--work", str(tmp_path / "w"), "--cache", "none", "--json"]
    done = cut_off(tmp_path, *words)
    assert set(states(done).values()) == {"done"}
    assert list((tmp_path / "shelf" / "wheels").glob("ember-1.0-*.whl"))


def test_without_the_bundle_it_says_what_is_missing(collected: Path, tree: Path, tmp_path: Path) -> None:
    words = ["build", str(collected / "plan.toml"), "--source", str(tree), "--work", str(tmp_path / "w")]
    done = cut_off(tmp_path, *words, "--cache", "none")
    assert done.returncode == 10 and "cannot install what the build requires" in done.stderr


def test_a_changed_wheel_stops_it_before_anything_is_done(collected: Path, tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(collected, copy)
    with next((copy / "wheels").glob("ninja-*.whl")).open("ab") as stream:
        stream.write(b"x")
    words = ["build", str(copy / "plan.toml"), "--bundle", str(copy), "--source", str(tree), "--work"]
    for more in ([], ["--dry-run"]):
        done = cut_off(tmp_path, *words, str(tmp_path / "w"), *more)
        assert done.returncode == BadInput.exit_code and "is not the file that was bundled" in done.stderr
    assert not (tmp_path / "w").exists()
