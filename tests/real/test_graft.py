"""The base of a graft, read out of a real official wheel; the border of its halves, and what is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from rekindle.build.graft import backend
from rekindle.build.graft import base as bases
from rekindle.build.graft.platforms import WINDOWS
from rekindle.core.errors import BadInput
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.formats import package
from rekindle.formats.elf import Symbols
from rekindle.wheels.inspect import grafted
from support.artefacts import wheel


@pytest.fixture(scope="module")
def official() -> Path:
    return wheel("torch==2.7.1", platform="manylinux_2_28_x86_64")


def libraries(official: Path) -> tuple[dict[str, Symbols], dict[str, Symbols]]:
    """The kept ones and the GPU half."""
    with package.open_package(official) as found:
        names = [name for name in found.files if name.startswith("torch/lib/") and ".so" in name]
        read = {name.rpartition("/")[2]: found.binary(name, symbols=True).symbols or Symbols() for name in names}
    half = {name: each for name, each in read.items() if grafted.is_gpu_half(name)}
    return {name: each for name, each in read.items() if name not in half}, half


def test_what_an_official_wheel_says_of_itself(official: Path) -> None:
    base = bases.read(official)
    assert (base.torch, base.cuda, base.python, base.cxx_abi) == ("2.7.1", Version("12.6"), "3.11", "cxx11")
    assert base.commit == "e2d141dbde55c2a4370fac5165b0561b6af4798b"
    assert (base.pin("nccl"), base.pin("cudnn")) == ("2.26.2", "9.5.1.17")
    assert not any(line.startswith("triton") for line in base.requires)


def test_the_border_of_the_halves_and_a_half_that_lacks_a_name(official: Path) -> None:
    kept, half = libraries(official)
    names = {"libc10_cuda.so", "libcaffe2_nvrtc.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so"}
    assert set(half) == names
    same = grafted.taken(kept, half, half)
    assert same.state is State.PASS
    taken = {name for name in kept["libtorch_python.so"].undefined if name in half["libtorch_cuda.so"].defined}
    assert len(taken) == 108
    lost = min(taken)
    own = half["libtorch_cuda.so"]
    poor = {**half, "libtorch_cuda.so": Symbols(defined=own.defined - {lost}, undefined=own.undefined)}
    said = grafted.taken(kept, half, poor)
    assert said.state is State.FAIL and f"`{lost}`" in said.found


def test_the_list_of_architectures_stands_once_in_the_python_half(official: Path) -> None:
    with zipfile.ZipFile(official) as archive:
        library = archive.read("torch/lib/libtorch_python.so")
    made = backend.relabelled(library, "sm_35 compute_35")
    assert len(made) == len(library) and made.count(b"\0sm_35 compute_35\0") == 1


def test_a_wheel_without_cuda_and_a_cut_one_are_no_base(official: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="without CUDA"):
        bases.read(wheel("torch==2.7.1", platform="win_amd64"))
    cut = tmp_path / official.name
    with official.open("rb") as whole, cut.open("wb") as stream:
        stream.write(whole.read(50_000_000))
    with pytest.raises(BadInput):
        bases.read(cut)


def test_what_a_windows_wheel_says_of_its_cpu_half_and_brings_to_link_with() -> None:
    """PyTorch's own index has the Windows wheels with CUDA; their CPU half is compiled as that of this one."""
    with package.open_package(wheel("torch==2.7.1", platform="win_amd64")) as found:
        cpu = found.read("torch/lib/torch_cpu.dll", limit=1 << 30)
        said = WINDOWS.said.findall(cpu)
        libraries = {name: found.binary(f"torch/lib/{name}.dll").pe for name in ("torch_cpu", "c10", "torch_python")}
        linkable = {name for name in found.files if name.endswith(".lib")}
    assert len(set(said)) == 1 and b" /EHsc " in said[0] and b" -DUSE_KINETO " in said[0]
    assert {"torch/lib/c10.lib", "torch/lib/torch_cpu.lib"} <= linkable
    read = {name: each for name, each in libraries.items() if each}
    # A pointer each for the plain kernel, AVX-512's and AVX2's: DispatchStub has both definitions.
    assert "?get_call_ptr@DispatchStubImpl@native@at@@QEAAPEAXW4DeviceType@c10@@PEAX11@Z" in read["torch_cpu"].exports
    names = {name: grafted.of_pe(each) for name, each in read.items()}
    inside = names["torch_cpu"].defined | names["c10"].defined
    taken = {name for name in names["torch_python"].undefined if name.startswith(("torch_cpu.dll!", "c10.dll!"))}
    assert len(taken) > 5_000 and taken <= inside
