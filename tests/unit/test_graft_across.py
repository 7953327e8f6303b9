"""A GPU half by CUDA 12 in a wheel of CUDA 13: what is exchanged with it, the bridge, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle.build.configure.request import BuildFile
from rekindle.build.graft import across, backend
from rekindle.build.graft import base as bases
from rekindle.build.graft.across import Exchange, exchange
from rekindle.core.errors import BadInput
from rekindle.core.untrusted import Sha256
from rekindle.core.version import Version
from rekindle.formats import elf
from rekindle.formats.access import File
from rekindle.model.card import Capability

REQUIRES = (
    "filelock",
    'cuda-toolkit[cublas,cudart]==13.0.2; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.19.0.56; platform_system == "Linux"',
    'nvidia-nccl-cu13==2.28.9; platform_system == "Linux"',
    'nvidia-nvshmem-cu13==3.4.5; platform_system == "Linux"',
    'triton==3.6.0; platform_system == "Linux"',
)
PASCAL, HOPPER = Capability(6, 1), Capability(9, 0)


def base(requires: tuple[str, ...] = REQUIRES, cuda: str = "13.0") -> bases.Base:
    return bases.Base(
        wheel="torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl", sha256=Sha256("0" * 64), torch="2.11.0",
        commit="a" * 40, cuda=Version(cuda), python="3.12", system="linux", arch="x86_64", cxx_abi="1",
        requires=bases._plain(requires),
    )  # fmt: skip


def test_the_same_major_exchanges_nothing() -> None:
    kept = bases.for_toolkit(base(), Version("13.2"), "7.5")
    assert kept.exchange is None and kept.installed == kept.requires
    assert "cuda-toolkit[cublas,cudart]==13.0.2" in kept.requires, "without its extras it brings nothing"


def test_the_packages_of_the_new_half_take_the_place_of_the_bases() -> None:
    found = bases.for_toolkit(base(), Version("12.4"), "6.1+PTX")
    assert found.exchange == Exchange(base=Version("13.0"), packages=Version("12.6"), cudnn=Version("9.10.2.21"))
    assert found.installed == (
        "filelock", "cuda-toolkit[cublas,cudart]==12.6.*", "nvidia-cuda-runtime==13.0.*", "nvidia-cuda-cupti==13.0.*",
        "nvidia-cudnn-cu12==9.10.2.21", "nvidia-nccl-cu12==2.28.9", "nvidia-nvshmem-cu13==3.4.5",
        "nvidia-cuda-crt==13.0.*", "nvidia-cuda-nvrtc==13.0.*",
    )  # fmt: skip
    assert found.pin("cudnn") == "9.10.2.21"


def test_the_bases_cudnn_stays_where_it_has_code_for_the_cards() -> None:
    found = exchange(Version("13.0"), REQUIRES, Version("12.9"), [HOPPER])
    assert found == Exchange(base=Version("13.0"), packages=Version("12.9"))


@pytest.mark.parametrize(
    ("told", "toolkit"),
    [
        (base(cuda="12.6"), "11.8"),  # the drivers of those cards end before the runtime of CUDA 12
        (
            base(("filelock", "nvidia-nccl-cu13==2.28.9")),
            "12.4",
        ),  # it names no list of packages that could be exchanged
        (base(), "11.8"),
    ],
)
def test_what_cannot_be_exchanged_is_refused(told: bases.Base, toolkit: str) -> None:
    with pytest.raises(BadInput, match="would not fit"):
        bases.on_base(BuildFile(cuda=Version(toolkit), arch_list="6.1"), told)


def test_the_wheel_says_what_it_needs_and_by_which_cuda_it_is() -> None:
    head = "Metadata-Version: 2.4\nName: torch\nVersion: 2.11.0\n" + "".join(f"Requires-Dist: {r}\n" for r in REQUIRES)
    made = Exchange(base=Version("13.0"), packages=Version("12.6"))
    record = backend.GraftRecord(
        base="torch.whl", base_sha256=Sha256("0" * 64), commit="a" * 40, replaced=("torch/lib/libtorch_cuda.so",),
        arch_list="6.1", cuda="12.4", compiler="gcc 12", lost=("MAGMA",), proofs=(),
    )  # fmt: skip
    text = backend._metadata(f"{head}\nPyTorch\n".encode(), "2.11.0+cu124.sm61", record, made).decode()
    assert 'Requires-Dist: cuda-toolkit[cublas,cudart]==12.6.*; platform_system == "Linux"\n' in text
    assert 'Requires-Dist: nvidia-cuda-runtime==13.0.*; platform_system == "Linux"\n' in text
    assert "nccl-cu13" not in text and "nvshmem-cu13==3.4.5" in text and "Version: 2.11.0+cu124.sm61\n" in text
    version = b"__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    assert backend._versioned(version, "2.11.0+cu124.sm61", Version("12.4")) == (
        b"__version__ = '2.11.0+cu124.sm61'\ncuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n"
    )


def test_cudnn_is_compared_with_what_the_gpu_half_was_compiled_with() -> None:
    old = b"            compile_version = _cudnn.getCompileVersion()\n"
    assert across.with_cudnn(old, Version("9.10.2.21")) == b"            compile_version = (9, 10, 2)\n"
    with pytest.raises(BadInput, match="another way"):
        across.with_cudnn(b"compile_version = 9\n", Version("9.10.2.21"))


_NAME = "_ZN2at4cuda19getDeviceProperty_BEa"


def test_the_python_half_asks_the_bridge() -> None:
    old = b"\0_Z3onev\0_ZN2at4cuda19getDevicePropertiesEa\0_Z3twov\0"
    asked = ("_Z3onev", "_ZN2at4cuda19getDevicePropertiesEa", "_Z3twov")
    made = across.bridged(old, asked, frozenset({_NAME}))
    assert made == b"\0_Z3onev\0" + _NAME.encode() + b"\0_Z3twov\0" and len(made) == len(old)
    with pytest.raises(BadInput, match="lacks the name"):
        across.bridged(old, asked, frozenset())
    for other in ((), (*asked, "_ZN2at4cuda26getCurrentDevicePropertiesEv")):
        with pytest.raises(BadInput, match="another way"):
            across.bridged(old, other, frozenset({_NAME}))


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
def test_the_bridge_has_the_name_that_it_is_for(tmp_path: Path) -> None:
    """With a CUDA of three functions, which says that a card is its third multiprocessor."""
    (tmp_path / "cuda_runtime_api.h").write_text(
        "enum cudaError_t { cudaSuccess };\nstruct cudaDeviceProp { int first, count; };\n"
        'inline const char* cudaGetErrorString(cudaError_t) { return ""; }\n'
        "inline cudaError_t cudaGetDeviceCount(int* n) { *n = 2; return cudaSuccess; }\n"
        "inline cudaError_t cudaGetDevice(int* n) { *n = 1; return cudaSuccess; }\n"
        "inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int n)\n"
        "{ p->count = 40 + n; return cudaSuccess; }\n",
        encoding="utf-8",
    )
    (tmp_path / "bridge.cpp").write_text(across.bridge(tmp_path), encoding="utf-8")
    library = tmp_path / "bridge.so"
    words = ["g++", "-std=c++17", "-shared", "-fPIC", "-fvisibility-inlines-hidden", str(tmp_path / "bridge.cpp")]
    subprocess.run([*words, "-o", str(library)], check=True)
    with File(library) as source:
        assert _NAME in elf.symbols(source).defined
    ask = f"import ctypes; f = ctypes.CDLL({str(library)!r})[{_NAME!r}]; f.restype = ctypes.POINTER(ctypes.c_int * 2)\n"
    ask += "print([f(ctypes.c_byte(n)).contents[1] for n in (0, 1, -1)])"
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[40, 41, 41]"
