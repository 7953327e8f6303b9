"""Windows wheels that lack what the guides' wheels lacked, made whole from the real packages of the index."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.wheels.repair import repair
from support import fatbins, small_wheels
from support.compiled import MINGW, Compiler

pytestmark = pytest.mark.long

INFO = {
    "torch-1.12.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 1.12.1\n",
    "torch-1.12.1.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp310-cp310-win_amd64\n",
    "torch/version.py": b"__version__ = '1.12.1'\ncuda = '11.7'\n",
}
# Each with a function that it really exports: a name that is not there is a finding of its own.
SEED_001 = {
    "mkl_intel_thread.2.dll": "mkl_blas_dgemm",
    "libiomp5md.dll": "omp_get_max_threads",
    "cupti64_2022.2.1.dll": "cuptiGetVersion",
}


def _wheel(root: Path, name: str, wanted: dict[str, str], code: bytes = b"") -> Path:
    (root / "built").mkdir()
    compiler = Compiler(root / "built", MINGW)
    archives = [str(compiler.import_library(library, [symbol])) for library, symbol in wanted.items()]
    built = compiler.build(name, wants=list(wanted.values()), options=archives)
    if code:
        (root / "code").write_bytes(code)
        compiler.run([f"{MINGW}-objcopy", "--add-section", f".nv_fatb={root / 'code'}", built])
    files = {f"torch/lib/{name}": built.read_bytes(), **INFO}
    return small_wheels.make(root / "dist", files, name="torch-1.12.1-cp310-cp310-win_amd64.whl")


def test_the_three_that_seed_001_lacked_come_from_the_index_with_what_they_need(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, "aoti_custom_ops.dll", SEED_001)
    done = repair.repair(wheel, tmp_path / "out", wish=repair.RepairWish())
    assert done.output is not None
    brought = {item.member.rpartition("/")[2]: item.origin for item in done.added}
    assert brought["mkl_intel_thread.2.dll"].startswith("mkl 2025.")
    assert brought["libiomp5md.dll"].startswith("intel-openmp 202")
    assert brought["cupti64_2022.2.1.dll"].startswith("nvidia-cuda-cupti-cu11 11.7.")
    # MKL's core and the kernels that it loads for each kind of processor: one release, not a mixture.
    assert {"mkl_core.2.dll", "mkl_def.2.dll", "mkl_avx2.2.dll", "mkl_avx512.2.dll"} <= brought.keys()
    assert len({origin for name, origin in brought.items() if name.startswith("mkl_")}) == 1
    assert not [item for item in done.findings if item.state is State.FAIL], done.findings
    small_wheels.check_record(done.output)
    with zipfile.ZipFile(done.output) as zipped:
        assert zipped.testzip() is None
        licences = [name for name in zipped.namelist() if "/licenses/bundled/" in name]
    assert {name.split("/")[3] for name in licences} >= {"mkl", "intel-openmp"}


def test_cudnn_8_is_brought_with_all_its_parts(tmp_path: Path) -> None:
    """The wheel links the front only; the parts are loaded while running. It has code for Volta, and cuDNN must too."""
    wheel = _wheel(tmp_path, "torch_cuda.dll", {"cudnn64_8.dll": "cudnnGetVersion"}, fatbins.container("sm_70"))
    wish = repair.RepairWish(exclude=("cublas*", "caffe2_nvrtc.dll", "nvrtc*"))
    done = repair.repair(wheel, tmp_path / "out", wish=wish)
    brought = {item.member.rpartition("/")[2]: item.origin for item in done.added}
    parts = ("", "_ops_infer", "_ops_train", "_cnn_infer", "_cnn_train", "_adv_infer", "_adv_train")
    assert {brought[f"cudnn{part}64_8.dll"] for part in parts} == {"nvidia-cudnn-cu11 8.9.5.29 of the package index"}
    # What cuDNN 8 loads and nobody may bring is named, with where to get it.
    zlib = next(item for item in done.findings if "zlibwapi.dll" in item.found)
    assert zlib.fix is not None and "zlib 1.2.13" in zlib.fix.text
    assert not [item for item in done.findings if item.state is State.FAIL], done.findings
