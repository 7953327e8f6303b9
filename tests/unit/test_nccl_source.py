"""Where a build's NCCL comes from, said before it begins; and which of the tree's pins the build is led to."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rekindle.build.configure import preflight
from rekindle.build.configure.environment import BuildPlaces, compute
from rekindle.build.configure.options import Options, Resolved
from rekindle.build.configure.preflight import NcclFrom, source_of_nccl
from rekindle.build.configure.request import BuildRequest, Compiler, Cuda
from rekindle.core.findings import State
from rekindle.core.version import Version

REQUEST = BuildRequest(
    source="/src",
    system="linux",
    arch="x86_64",
    python="/usr/bin/python3",
    compiler=Compiler(kind="gcc", cxx="/usr/bin/g++-13", c="/usr/bin/gcc-13", cuda_host="/usr/bin/g++-13"),
    cuda=Cuda(root="/opt/cuda-12.6", nvcc="/opt/cuda-12.6/bin/nvcc", version=Version("12.6.85")),
    torch="2.15.0",
    arch_list="6.1",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The pins as the tree of 2.15.0a0 has them."""
    pins = tmp_path / ".ci" / "docker" / "ci_commit_pins"
    pins.mkdir(parents=True)
    (pins / "nccl.txt").write_text("v2.30.7-1\n", encoding="utf-8")
    (pins / "nccl-cu126.txt").write_text("v2.29.3-1\n", encoding="utf-8")
    return tmp_path


def options(**values: str) -> Options:
    found = (Resolved(name=name, value=value, origin="user", via="cmake") for name, value in values.items())
    return Options(resolved=tuple(found))


def test_the_clone_and_its_release_are_said_with_the_ways_around_it(tree: Path) -> None:
    (found,) = preflight.findings(REQUEST, options(), tree)
    assert found.state is State.PASS and "clones NCCL v2.29.3-1 from https://github.com/NVIDIA/nccl" in found.found
    assert found.fix and "USE_NCCL=0" in found.fix.text and "USE_SYSTEM_NCCL=1" in found.fix.text


def test_another_cuda_has_the_other_pin(tree: Path) -> None:
    newer = msgspec.structs.replace(REQUEST, cuda=msgspec.structs.replace(REQUEST.cuda, version=Version("13.0")))
    assert source_of_nccl(newer, options(), tree).tag == "v2.30.7-1"


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ({"USE_NCCL": "0"}, NcclFrom.OFF),
        ({"USE_DISTRIBUTED": "OFF"}, NcclFrom.OFF),
        ({"USE_SYSTEM_NCCL": "1"}, NcclFrom.SYSTEM),
        ({"USE_NCCL": "ON"}, NcclFrom.CLONE),
    ],
)
def test_options_decide(tree: Path, given: dict[str, str], origin: NcclFrom) -> None:
    assert source_of_nccl(REQUEST, options(**given), tree).origin is origin


def test_a_source_in_the_tree_is_taken_and_an_empty_folder_is_none(tree: Path) -> None:
    folder = tree / "third_party" / "nccl"
    folder.mkdir(parents=True)
    assert source_of_nccl(REQUEST, options(), tree).origin is NcclFrom.CLONE
    (folder / "Makefile").write_text("all:\n", encoding="utf-8")
    assert source_of_nccl(REQUEST, options(), tree).origin is NcclFrom.TREE
    assert not list(preflight.findings(REQUEST, options(), tree))


def test_without_cuda_on_windows_and_before_the_clone_nothing_is_said(tree: Path) -> None:
    for changed in ({"cuda": None}, {"system": "windows"}, {"torch": "2.6.0"}):
        assert not list(preflight.findings(msgspec.structs.replace(REQUEST, **changed), options(), tree)), changed


def test_a_tree_that_pins_nothing_readable_is_a_warning(tree: Path) -> None:
    for name in ("nccl.txt", "nccl-cu126.txt"):
        (tree / ".ci" / "docker" / "ci_commit_pins" / name).write_text("--upload-pack=x", encoding="utf-8")
    (found,) = preflight.findings(REQUEST, options(), tree)
    assert found.state is State.WARN and "--upload-pack" not in found.found


def test_the_build_is_led_to_the_pin_of_its_cuda() -> None:
    assert compute(REQUEST, (), places=BuildPlaces(temp="/t")).value("DESIRED_CUDA") == "12.6"


def test_from_2_14_the_environment_says_what_the_options_say() -> None:
    """Upstream writes a USE_* of the environment over a -D: one left in the shell would win."""
    kept = Resolved(name="USE_KINETO", value="0", origin="user", via="cmake", why="asked for")
    other = Resolved(name="BLAS_USE_CBLAS_DOT", value="ON", origin="rule", via="cmake")
    environment = compute(REQUEST, (kept, other), places=BuildPlaces(temp="/t"))
    assert environment.over({"USE_KINETO": "1"})["USE_KINETO"] == "OFF"
    assert environment.value("BLAS_USE_CBLAS_DOT") is None
    before = compute(msgspec.structs.replace(REQUEST, torch="2.13.0"), (kept,), places=BuildPlaces(temp="/t"))
    assert before.value("USE_KINETO") is None


def test_what_makes_another_pytorch_is_not_taken_from_the_shell() -> None:
    environment = compute(REQUEST, (), places=BuildPlaces(temp="/t"))
    left = {"DEBUG": "1", "CMAKE_BUILD_TYPE": "Debug", "BUILD_PYTHON_ONLY": "1", "USE_NIGHTLY": "1"}
    assert not environment.over(left).keys() & left.keys()
    asked = Resolved(name="CMAKE_BUILD_TYPE", value="RelWithDebInfo", origin="user", via="cmake")
    assert compute(REQUEST, (asked,), places=BuildPlaces(temp="/t")).over(left)["CMAKE_BUILD_TYPE"] == "RelWithDebInfo"
    other = compute(msgspec.structs.replace(REQUEST, torch=None), (), places=BuildPlaces(temp="/t"))
    assert other.over(left)["DEBUG"] == "1"
