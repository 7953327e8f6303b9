"""A wheel that is loaded with torch is no broken wheel: what torch brings is torch's, and is checked against it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rekindle.core.errors import BadInput
from rekindle.core.findings import Finding, State
from rekindle.wheels.inspect.identity import read_torch
from rekindle.wheels.inspect.inspection import inspect
from rekindle.wheels.repair import repair
from support import small_wheels
from support.command import rekindle_command
from support.compiled import Compiler

pytestmark = pytest.mark.skipif(os.name == "nt", reason="gcc makes the libraries")

CHECK = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
NEW_STRING = "_ZN5torch3jit6importERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
OLD_STRING = "_ZN5torch3jit6importERKSs"


def _torch(
    root: Path, version: str = "2.7.1+cu126", cuda: str | None = "12.6", offers: tuple[str, ...] = (CHECK, NEW_STRING)
) -> Path:
    gcc = Compiler(root / "files", "")
    libc10 = gcc.build("torch/lib/libc10.so", offers=offers, options=("-Wl,-soname,libc10.so",)).read_bytes()
    info = f"torch-{version}.dist-info"
    files = {
        "torch/__init__.py": b"",
        "torch/version.py": f"__version__ = '{version}'\ncuda = {cuda!r}\n".encode(),
        "torch/lib/libc10.so": libc10,
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
            + ("Requires-Dist: nvidia-cuda-runtime-cu12==12.6.77\n" if cuda else "")
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n",
    }
    return small_wheels.make(root, files, name=f"torch-{version}-cp311-cp311-linux_x86_64.whl")


def _extension(
    root: Path,
    wants: tuple[str, ...] = (CHECK,),
    needs: tuple[str, ...] = ("libc10.so",),
    requires: str = "Requires-Dist: torch==2.7.1\n",
    version: str = "1.0",
) -> Path:
    gcc = Compiler(root / "files", "")
    stubs = []
    for name in needs:
        stub = gcc.work / name
        gcc.run([gcc.gcc, "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-o", stub, "-x", "c", os.devnull])
        stubs.append(str(stub))
    options = ("-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-as-needed", *stubs)
    module = gcc.build("ext/_C.so", wants=wants, options=options).read_bytes()
    info = f"ext-{version}.dist-info"
    files = {
        "ext/__init__.py": b"",
        "ext/_C.so": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: ext\nVersion: {version}\n{requires}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n",
    }
    return small_wheels.make(root, files, name=f"ext-{version}-cp311-cp311-linux_x86_64.whl")


def _linking(wheel: Path, against: Path | None = None) -> dict[str, Finding]:
    found = inspect(wheel, against=read_torch(against) if against else None)
    return {item.id: item for item in found.findings if item.id.startswith("closure")}


def test_what_torch_brings_is_not_missing(tmp_path: Path) -> None:
    found = _linking(_extension(tmp_path, needs=("libc10.so", "libcudart.so.12")))
    assert list(found) == ["closure.torch"]
    assert found["closure.torch"].state is State.UNVERIFIED
    assert "`libc10.so`, `libcudart.so.12` come with torch" in found["closure.torch"].found


@pytest.mark.parametrize("requires", ["Requires-Dist: torch==2.7.1\n", "Requires-Dist: torch (>=2.0)\n", ""])
def test_against_its_own_torch_it_passes(tmp_path: Path, requires: str) -> None:
    torch = _torch(tmp_path / "torch")
    wheel = _extension(tmp_path / "ext", (CHECK, NEW_STRING), ("libc10.so", "libcudart.so.12"), requires)
    found = _linking(wheel, torch)
    assert {item.state for item in found.values()} == {State.PASS}, found
    assert "torch 2.7.1+cu126 has them" in found["closure.torch"].found


@pytest.mark.parametrize(
    ("torch", "extension", "said"),
    [
        ({"version": "2.4.1+cu126"}, {}, "requires `torch==2.7.1`, and this is 2.4.1+cu126"),
        ({"offers": ("something_else",)}, {}, "torch 2.7.1+cu126 does not have"),
        ({"cuda": None, "version": "2.7.1+cpu"}, {"needs": ("libc10.so", "libcudart.so.12")}, "CPU build"),
        ({}, {"needs": ("libc10.so", "libcudart.so.11.0")}, "does not include it (CUDA 12.6)"),
        ({}, {"version": "1.0+cu118"}, "uses CUDA 11.8, and torch is built for CUDA 12.6"),
        ({"offers": (CHECK, OLD_STRING)}, {"wants": (NEW_STRING,)}, "has the C++ ABI cxx11, torch has pre-cxx11"),
        ({}, {"wants": (OLD_STRING,)}, "has the C++ ABI pre-cxx11, torch has cxx11"),
        ({}, {"needs": ("libc10.so", "libc10_cuda.so")}, "`libc10_cuda.so` is not in the package"),
        ({}, {"needs": ("libc10.so", "libnowhere.so.1")}, "`libnowhere.so.1` is not in the package"),
    ],
)
def test_what_does_not_fit_is_found(
    tmp_path: Path, torch: dict[str, object], extension: dict[str, object], said: str
) -> None:
    against = _torch(tmp_path / "torch", **torch)  # type: ignore[arg-type]
    found = _linking(_extension(tmp_path / "ext", **extension), against)  # type: ignore[arg-type]
    failed = [item.found for item in found.values() if item.state is State.FAIL]
    assert any(said in text for text in failed), found


def test_one_file_per_cuda_is_one_that_fits(tmp_path: Path) -> None:
    """As bitsandbytes does: the file for another CUDA is not loaded, so that it cannot be is no fault."""
    torch = _torch(tmp_path / "torch")
    root = tmp_path / "ext"
    gcc = Compiler(root / "files", "")
    files = {"ext/__init__.py": b""}
    for cuda, name in (("118", "libcudart.so.11.0"), ("126", "libcudart.so.12")):
        stub = gcc.work / name
        gcc.run([gcc.gcc, "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-o", stub, "-x", "c", os.devnull])
        built = gcc.build(f"ext/libext_cuda{cuda}.so", options=("-Wl,--no-as-needed", str(stub)))
        files[f"ext/libext_cuda{cuda}.so"] = built.read_bytes()
    info = "ext-1.0.dist-info"
    files[f"{info}/METADATA"] = b"Metadata-Version: 2.1\nName: ext\nVersion: 1.0\nRequires-Dist: torch\n"
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\n"
    wheel = small_wheels.make(root, files, name="ext-1.0-py3-none-linux_x86_64.whl")
    assert {item.state for item in _linking(wheel, torch).values()} == {State.PASS}
    del files["ext/libext_cuda126.so"]
    left = small_wheels.make(root, files, name="ext-1.0-py3-none-linux_x86_64.whl")
    assert State.FAIL in {item.state for item in _linking(left, torch).values()}


def test_verify_takes_the_torch_that_lies_beside(tmp_path: Path) -> None:
    wheel = _extension(tmp_path)
    alone = rekindle_command("verify", str(wheel), "--no-run", "--json").json()
    _torch(tmp_path, version="2.4.1+cu126")
    wrong = rekindle_command("verify", str(wheel), "--no-run", "--json").json()
    _torch(tmp_path)
    beside = rekindle_command("verify", str(wheel), "--no-run", "--json").json()
    states = [next(c["state"] for c in said["checks"] if c["id"] == "closure") for said in (alone, wrong, beside)]
    assert states == ["UNVERIFIED", "UNVERIFIED", "PASS"]
    named = rekindle_command("verify", str(wheel), "--no-run", "--against", str(next(tmp_path.glob("torch-2.4*"))))
    assert named.code == 8
    assert "this is 2.4.1+cu126" in " ".join(named.out.split())


def test_inspect_says_what_torch_it_is_for(tmp_path: Path) -> None:
    wheel = _extension(tmp_path / "ext", wants=(NEW_STRING,))
    seen = rekindle_command("inspect", str(wheel), "--against", str(_torch(tmp_path / "torch")), "--json").json()
    assert (seen["project"], seen["torch"], seen["cxx_abi"]) == ("ext", "2.7.1", "cxx11")
    assert seen["closure"]["against"] == "torch 2.7.1+cu126"
    assert "built for 2.7.1" in rekindle_command("inspect", str(wheel)).out


def test_what_is_not_torch_cannot_be_checked_against(tmp_path: Path) -> None:
    wheel = _extension(tmp_path)
    with pytest.raises(BadInput, match="has no torch"):
        read_torch(wheel)


def test_repair_does_not_bring_torch_into_an_extension(tmp_path: Path) -> None:
    done = repair.repair(_extension(tmp_path / "ext"), tmp_path / "out", wish=repair.RepairWish(index=False))
    assert not [item for item in done.findings if item.state is State.FAIL], done.findings


@pytest.mark.parametrize("library", ["libtorch_cuda.so", "libcudart.so.12"])
def test_what_a_cpu_torch_lacks_is_not_repaired_into_the_wheel(tmp_path: Path, library: str) -> None:
    """A second libtorch_cuda inside the extension would be of no use: the torch is the wrong one."""
    against = _torch(tmp_path / "torch", cuda=None, version="2.7.1+cpu")
    found = _linking(_extension(tmp_path / "ext", needs=("libc10.so", library)), against)
    fixes = [
        item.fix.text for item in found.values() if item.state is State.FAIL and item.fix and library in item.found
    ]
    assert fixes
    assert all("a torch with CUDA" in text and "repair" not in text for text in fixes)
