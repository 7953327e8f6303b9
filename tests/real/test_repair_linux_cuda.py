"""A torch wheel for x86_64 Linux, built somewhere with CUDA 11.8, OpenBLAS and cuDNN, made to load with the driver
alone: every library comes from the index packages of NVIDIA's, on a machine of any kind."""

from __future__ import annotations

import platform
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.wheels.repair import repair
from support import fatbins, small_wheels
from support.artefacts import unverified

CUDA = (
    "libcublas.so.11", "libcufft.so.10", "libcurand.so.10", "libcusolver.so.11", "libcusparse.so.11",
    "libcudart.so.11.0", "libnvToolsExt.so.1",
)  # fmt: skip
# What those need in turn: NEEDED of the files in NVIDIA's packages, and what NVRTC opens while running.
FURTHER = ("libcublasLt.so.11", "libnvrtc-builtins.so.11.8")
TAG = "cp310-cp310-linux_x86_64"
CUDNN = ("", "_ops_infer", "_ops_train", "_cnn_infer", "_cnn_train", "_adv_infer", "_adv_train")


class Gcc:
    """The compiler for x86_64, of this machine or for it."""

    def __init__(self, root: Path) -> None:
        name = "gcc" if platform.machine() == "x86_64" else "x86_64-linux-gnu-gcc"
        found = shutil.which(name)
        if found is None:
            unverified(f"`{name}` is not installed here")
        self.gcc, self.root = str(found), root
        self.objcopy = name.replace("gcc", "objcopy")

    def library(self, name: str, needed: tuple[str, ...], *, code: bytes = b"") -> bytes:
        """A library that links these, which only have to be called so."""
        links = [self._linked(self.root / "linked" / one, one, ()) for one in needed]
        built = self._linked(self.root / name, name, ("-Wl,--no-as-needed", *map(str, links), "-Wl,-rpath,$ORIGIN"))
        if code:
            (self.root / "code").write_bytes(code)
            self._run([self.objcopy, "--add-section", f".nv_fatbin={self.root / 'code'}", str(built)])
        return built.read_bytes()

    def _linked(self, path: Path, soname: str, options: tuple[str, ...]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        source = self.root / "empty.c"
        source.write_text("int nothing_in_particular;\n", encoding="utf-8")
        self._run(
            [self.gcc, "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{soname}", "-o", str(path), str(source), *options]
        )
        return path

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr


def _torch(tmp_path: Path, needed: tuple[str, ...], *, blas: str = "libopenblas.so.0") -> Path:
    gcc = Gcc(tmp_path / "built")
    kepler = fatbins.container("sm_35")
    files = {
        "torch/__init__.py": b"",
        "torch/version.py": b"__version__ = '1.13.1+cu118.sm35'\ncuda = '11.8'\n",
        "torch/lib/libtorch_cpu.so": gcc.library("libtorch_cpu.so", (blas,) if blas else ()),
        "torch/lib/libtorch_cuda.so": gcc.library("libtorch_cuda.so", ("libtorch_cpu.so", *needed), code=kepler),
        "torch/lib/libcaffe2_nvrtc.so": gcc.library("libcaffe2_nvrtc.so", ("libnvrtc.so.11.2", "libcuda.so.1")),
        "torch-1.13.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 1.13.1\n",
        "torch-1.13.1.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(),
    }
    return small_wheels.make(tmp_path / "dist", files, name=f"torch-1.13.1-{TAG}.whl")


@pytest.mark.long
def test_every_library_of_cuda_11_8_comes_from_the_index(tmp_path: Path) -> None:
    wheel = _torch(tmp_path, CUDA)
    done = repair.repair(wheel, tmp_path / "out", wish=repair.RepairWish())
    assert done.output is not None
    brought = {item.member.rpartition("/")[2]: item.origin for item in done.added}
    assert {*CUDA, *FURTHER, "libnvrtc.so.11.2"} <= set(brought)
    assert brought["libcublas.so.11"] == "nvidia-cublas-cu11 11.11.3.6 of the package index"
    assert "libcuda.so.1" not in brought
    if platform.machine() != "x86_64":
        # OpenBLAS is in no package under its own name; a machine of another kind cannot give its own.
        failed = [item for item in done.findings if item.state is State.FAIL]
        assert [item.found.split("`")[1] for item in failed] == ["libopenblas.so.0"]
        assert failed[0].fix is not None and "libopenblas0-pthread" in failed[0].fix.text
    small_wheels.check_record(done.output)
    with zipfile.ZipFile(done.output) as zipped:
        zipped.extractall(tmp_path / "site")
    # The linker's own view, without the code under test: everything that is linked lies in the folder, and is found.
    lib = tmp_path / "site/torch/lib"
    there = {path.name for path in lib.iterdir()}
    system = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1",
              "libstdc++.so.6", "ld-linux-x86-64.so.2", "libcuda.so.1", "libopenblas.so.0"}  # fmt: skip
    for path in sorted(lib.iterdir()):
        said = subprocess.run(["readelf", "-dW", str(path)], capture_output=True, text=True, check=True, timeout=120)
        needed = {line.split("[")[1].rstrip("]") for line in said.stdout.splitlines() if "(NEEDED)" in line}
        assert needed <= there | system, path.name
        if needed & there:
            assert "$ORIGIN" in said.stdout, path.name


@pytest.mark.long
def test_a_kepler_wheel_gets_the_last_cudnn_with_code_for_it_whole(tmp_path: Path) -> None:
    """Nobody named the card: the wheel's own code is for sm_35, and cuDNN 8.8 has none."""
    wheel = _torch(tmp_path, ("libcudnn.so.8",), blas="")
    done = repair.repair(wheel, tmp_path / "out", wish=repair.RepairWish(exclude=("libnvrtc*", "libcublas*")))
    brought = {item.member: item.origin for item in done.added}
    for part in CUDNN:
        origin = brought[f"torch/lib/libcudnn{part}.so.8"]
        assert origin == "nvidia-cudnn-cu11 8.7.0.84 of the package index"
    assert not [item for item in done.findings if item.state is State.FAIL]


def test_openblas_is_taken_from_the_unpacked_package_of_the_builders_system(tmp_path: Path) -> None:
    """`dpkg -x libopenblas0-pthread`: links within the package are followed, the library keeps its linked name."""
    folder = tmp_path / "unpacked/usr/lib/x86_64-linux-gnu/openblas-pthread"
    real = Gcc(tmp_path / "blas")
    folder.mkdir(parents=True)
    (folder / "libopenblasp-r0.3.21.so").write_bytes(real.library("libopenblas.so.0", ("libgfortran.so.5",)))
    (folder / "libopenblas.so.0").symlink_to("libopenblasp-r0.3.21.so")
    (folder.parent / "libgfortran.so.5").write_bytes(real.library("libgfortran.so.5", ()))
    wheel = _torch(tmp_path, (), blas="libopenblas.so.0")
    wish = repair.RepairWish(folders=(tmp_path / "unpacked",), index=False, exclude=("libnvrtc*",))
    done = repair.repair(wheel, tmp_path / "out", wish=wish)
    assert {item.member for item in done.added} == {"torch/lib/libopenblas.so.0", "torch/lib/libgfortran.so.5"}
