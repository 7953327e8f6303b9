"""Extensions built for real: against torches with CUDA from the index, with a real nvcc, and looked at.

The environments are kept between runs (4 GB each); what this machine has no torch or no toolkit for is UNVERIFIED.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle.audit.cards import cards_for
from rekindle.build.configure.environment import BuildEnvironment as BuildEnvironment
from rekindle.build.configure.request import BuildRequest, Compiler
from rekindle.core.errors import StepFailed
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.extension.build import ExtensionReport, ExtensionRequest, build, make
from rekindle.extension.prepare import Preparation
from rekindle.machine.model import Machine
from rekindle.model.environment import Environment
from support import artefacts
from support.artefacts import unverified
from support.cuda import kepler_toolkit, machine

EXAMPLE = Path(__file__).parents[2] / "examples" / "scale_add"


def environment(torch: str, *more: str) -> Path:
    """A venv with a torch of the index, kept between runs."""
    if sys.platform != "linux":
        unverified("the torches with CUDA of the index are for Linux")
    return artefacts.environment(f"extension-torch-{torch}", f"torch=={torch}", *more)


@pytest.fixture(scope="module")
def cuda130() -> Path:
    """torch 2.11.0 (CUDA 13.0), which the index has for both processors."""
    needs_cuda(13)
    return environment("2.11.0", "numpy")


def needs_cuda(major: int) -> Machine:
    if not any(kit.version and kit.version.major == major and kit.nvcc for kit in machine().toolkits):
        unverified(f"there is no CUDA {major} toolkit on this machine")
    return machine()


def built(project: str, place: Path, output: Path, *gpus: str) -> ExtensionReport:
    cards = cards_for(gpus, None, None).cards
    return build(ExtensionRequest(project=project, environment=place, output=output), cards=cards, machine=machine())


@pytest.mark.long
def test_the_example_holds_exactly_the_asked_code(cuda130: Path, tmp_path: Path) -> None:
    report = built(str(EXAMPLE), cuda130, tmp_path, "H200", "sm_75")
    assert report.state is State.PASS, report.findings
    assert report.targets == {"sm_75": 1, "sm_90": 1}
    assert report.wheel is not None
    assert Path(report.wheel).is_file()


@pytest.mark.long
def test_the_example_for_kepler_pascal_and_hopper_with_another_minor_of_cuda(tmp_path: Path) -> None:
    """torch 2.0.1 is built with CUDA 11.7. 11.8 is the only toolkit with both sm_35 and sm_90: said, not refused."""
    if platform.machine() != "x86_64":
        unverified(f"the index has torch 2.0.1 with CUDA for x86_64 only; this is {platform.machine()}")
    if sys.version_info >= (3, 12):
        unverified("torch 2.0.1 is for Python 3.8 to 3.11")
    needs_cuda(11)
    report = built(str(EXAMPLE), environment("2.0.1", "numpy<2"), tmp_path, "sm_35", "sm_61", "sm_90")
    assert report.targets == {"sm_35": 1, "sm_61": 1, "sm_90": 1}
    said = {finding.id: finding for finding in report.findings}
    assert said["extension.toolkit"].state is State.WARN
    assert "11.8" in said["extension.toolkit"].found
    assert "built with 11.7: compatible" in said["extension.toolkit"].found
    doubtful = {finding.id for finding in report.findings if finding.state is not State.PASS}
    assert doubtful <= {"extension.toolkit", "extension.ptxas"}  # the second where a newer CUDA comes first on PATH


@pytest.mark.long
def test_somebody_elses_extension_from_its_sdist(cuda130: Path, tmp_path: Path) -> None:
    """chamferdist: no wheels, CUDA only if FORCE_CUDA says so where no card is."""
    said: list[str] = []
    cards = cards_for(["H200"], None, None).cards
    wanted = ExtensionRequest(project="chamferdist==1.0.3", environment=cuda130, output=tmp_path)
    report = build(wanted, cards=cards, machine=machine(), tell=said.append)
    assert "pip would build it from source" in said[0]
    assert report.state is State.PASS, report.findings
    assert report.targets == {"sm_90": 1}
    states = {finding.id: finding.state for finding in report.findings}
    assert states["extension.linkage"] is State.PASS
    assert states["extension.import"] is State.PASS


@pytest.mark.long
def test_torchvision_for_this_torch(cuda130: Path, tmp_path: Path) -> None:
    """45 files from the repository at the tag that belongs to torch 2.11; minutes on sixteen cores, more on two."""
    probe = ["git", "ls-remote", "https://github.com/pytorch/vision.git", "refs/tags/v0.26.0"]
    if subprocess.run(probe, capture_output=True, timeout=60, check=False).returncode:
        unverified("the repository of torchvision cannot be reached")
    cards = cards_for(["H200"], None, None).cards
    wanted = ExtensionRequest(project="torchvision", environment=cuda130, output=tmp_path, from_source=True)
    report = build(wanted, cards=cards, machine=machine())
    assert report.state is State.PASS, report.findings
    assert Path(str(report.wheel)).name.startswith("torchvision-0.26.0-")
    assert set(report.targets) == {"sm_90"}


BROKEN = {
    "mistake": ("__global__ void k(float* x) { x[0] = undefined_thing; }\n", "source"),
    "header": ('#include "no_such_header.h"\n__global__ void k() {}\n', "header"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", BROKEN)
def test_a_kernel_that_does_not_compile_ends_with_the_cause(cuda130: Path, tmp_path: Path, kind: str) -> None:
    text, cause = BROKEN[kind]
    (tmp_path / "k.cu").write_text(text, encoding="utf-8")
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\n"
        "from torch.utils.cpp_extension import BuildExtension, CUDAExtension\n"
        "setup(name='broken', version='1', ext_modules=[CUDAExtension('broken._C', ['k.cu'])],\n"
        "      cmdclass={'build_ext': BuildExtension})\n",
        encoding="utf-8",
    )
    with pytest.raises(StepFailed) as caught:
        built(str(tmp_path), cuda130, tmp_path / "out", "H200")
    assert cause in caught.value.message.lower()
    assert "k.cu" in caught.value.message


def test_a_compiler_that_is_too_new_is_named(tmp_path: Path) -> None:
    """A project that calls nvcc by itself, with a GCC that this CUDA refuses."""
    kit = kepler_toolkit()
    newer = next((path for major in (12, 13, 14, 15) if (path := shutil.which(f"g++-{major}"))), None)
    if newer is None:
        unverified("there is no GCC here that is newer than CUDA 11.8 takes")
    project = tmp_path / "project"
    project.mkdir()
    (project / "k.cu").write_text("__global__ void k() {}\n", encoding="utf-8")
    command = [str(kit.nvcc), "-ccbin", str(newer), "-c", "k.cu", "-o", "k.o"]
    (project / "setup.py").write_text(f"import subprocess\nsubprocess.run({command!r}, check=True)\n", encoding="utf-8")
    here = Environment(
        root="env", os="linux", kind="venv", python=Version("3.11"), site_packages=(), interpreter=sys.executable,
        has_headers=True,
    )  # fmt: skip
    gcc = Compiler(kind="gcc", c="gcc", cxx="g++", cuda_host="g++")
    request = BuildRequest(source="s", system="linux", arch=platform.machine(), python=sys.executable, compiler=gcc)
    found = Preparation(
        findings=(), arch_list="3.5", request=request, environment=BuildEnvironment(system="linux", changes=()),
        builder=sys.executable,
    )  # fmt: skip
    (tmp_path / "work").mkdir()
    with pytest.raises(StepFailed) as caught:
        make("project", project, here, found, work=tmp_path / "work", output=tmp_path / "out", tell=lambda _: None)
    assert "GCC is newer than the CUDA release accepts" in caught.value.message
