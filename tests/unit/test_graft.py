"""The official wheel with another GPU half: what is read out of it, the Ninja file, the proofs, the new wheel."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rekindle.build.configure.request import BuildFile
from rekindle.build.graft import backend, ninja_file
from rekindle.build.graft import base as bases
from rekindle.build.graft.backend import packages_of
from rekindle.build.graft.platforms import LINUX, WINDOWS
from rekindle.core.errors import BadInput, NotFound, UsageError
from rekindle.core.findings import State
from rekindle.core.untrusted import Sha256
from rekindle.core.version import Version
from rekindle.formats.elf import Symbols
from rekindle.knowledge.builds import costs
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.model.card import Capability
from rekindle.stack import shorter
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Shorter
from rekindle.stack.situation import Wish, situation_from_options
from rekindle.wheels.inspect import grafted
from support import small_wheels, trees

_KEPLER = (Capability(3, 5),)
COMMIT = "e9ebda29d87ce0916ab08c06ab26fd3766a870e5"


def base(**changed: object) -> bases.Base:
    told: dict[str, object] = {
        "wheel": "torch-2.0.1-cp311-cp311-manylinux1_x86_64.whl", "sha256": Sha256("0" * 64), "torch": "2.0.1",
        "commit": COMMIT, "cuda": Version("11.7"), "python": "3.11", "system": "linux", "arch": "x86_64",
        "cxx_abi": "0", "requires": ("filelock", "nvidia-nccl-cu11==2.14.3"),
    }  # fmt: skip
    return bases.Base(**{**told, **changed})  # type: ignore[arg-type]


def test_the_base_decides_release_commit_and_python() -> None:
    wanted = bases.on_base(BuildFile(arch_list="3.5+PTX", cuda=Version("11.8")), base())
    assert (wanted.torch, wanted.commit, wanted.python, wanted.backend) == ("2.0.1", COMMIT, "3.11", "graft")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (BuildFile(torch="2.1.0"), "has PyTorch 2.0.1, the plan 2.1.0"),
        (BuildFile(commit="f" * 40), f"has commit {COMMIT}, the plan {'f' * 40}"),
        (BuildFile(python="3.10"), "has Python 3.11, the plan 3.10"),
        (BuildFile(cuda=Version("12.4")), "a GPU half by CUDA 12.4 would not fit"),
    ],
)
def test_a_plan_for_another_base_is_refused(said: BuildFile, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        bases.on_base(said, base())


def test_what_cannot_be_grafted_says_so() -> None:
    with pytest.raises(UsageError, match="the first whose"):
        bases.on_base(BuildFile(), base(torch="1.13.1"))


def test_a_base_whose_hash_is_not_the_plans_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "torch-2.0.1-cp311-cp311-linux_x86_64.whl"
    wheel.write_bytes(b"PK")
    with pytest.raises(BadInput, match="is not the base of the plan"):
        bases.read(wheel, sha256=Sha256("0" * 64))
    with pytest.raises(NotFound):
        bases.read(tmp_path / "torch.whl")


def test_a_base_that_was_exchanged_since_is_not_unpacked(tmp_path: Path) -> None:
    """It was hashed when the build began, and opened again by its name hours later."""
    good = small_wheels.make(tmp_path, {"torch/version.py": b"good"})
    read = base(wheel=str(good), sha256=Sha256(hashlib.sha256(good.read_bytes()).hexdigest()))
    small_wheels.make(tmp_path, {"torch/version.py": b"bad"}).replace(good)
    with pytest.raises(BadInput, match="is not the base of the plan"):
        bases.unpack(read, tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_a_truncated_base_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    wheel = tmp_path / "torch-2.0.1-cp311-cp311-linux_x86_64.whl"
    wheel.write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(BadInput):
        bases.read(wheel, sha256=Sha256(hashlib.sha256(wheel.read_bytes()).hexdigest()))


def test_the_requirements_of_a_base_are_those_of_pip_without_triton() -> None:
    lines = (
        "filelock",
        'nvidia-nccl-cu11 (==2.14.3) ; platform_system == "Linux" and platform_machine == "x86_64"',
        'triton (==2.0.0) ; platform_system == "Linux"',
        "opt-einsum (>=3.3) ; extra == 'opt-einsum'",
    )
    assert bases._plain(lines) == ("filelock", "nvidia-nccl-cu11==2.14.3")
    assert base().pin("nccl") == "2.14.3" and base().pin("cudnn") is None


def tree(root: Path) -> Path:
    trees.write(root / "s", {
        "build_variables.bzl": 'libtorch_cuda_core_sources = [\n    "torch/csrc/CudaIPCTypes.cpp",  # "no.cpp"\n]\n'
        'libtorch_cuda_distributed_extra_sources = [\n    "torch/csrc/distributed/rpc/tensorpipe_cuda.cpp",\n]\n',
        "c10/cuda/CMakeLists.txt": "set(C10_CUDA_SRCS\n    CUDAStream.cpp  # one\n    impl/CUDATest.cpp\n)\n",
        "c10/cuda/CUDAStream.cpp": "", "c10/cuda/impl/CUDATest.cpp": "", "torch/csrc/CudaIPCTypes.cpp": "",
        "aten/src/ATen/native/cuda/Small.cu": "x", "aten/src/ATen/native/cuda/Large.cu": "x" * 99,
        "aten/src/ATen/native/cuda/Heavy.cu": "#include <cutlass/gemm.h>", "aten/src/ATen/native/cuda/linalg/B.cpp": "",
        "torch/csrc/distributed/rpc/tensorpipe_cuda.cpp": "", "caffe2/CMakeLists.txt": "",
    })  # fmt: skip
    generated = root / "b" / ninja_file.GENERATED
    generated.mkdir(parents=True)
    for name in ("RegisterCUDA_0.cpp", "RegisterCUDAEverything.cpp", "RegisterCPU_0.cpp", "UfuncCUDA_add.cu"):
        (generated / name).write_text("", encoding="utf-8")
    return root


def test_the_gpu_half_is_what_the_tree_says(tmp_path: Path) -> None:
    root = tree(tmp_path)
    found = ninja_file.sources(root / "s", root / "b", _KEPLER, LINUX)
    assert found.files["c10_cuda"] == ("c10/cuda/CUDAStream.cpp", "c10/cuda/impl/CUDATest.cpp")
    assert found.files["torch_cuda_linalg"] == ("aten/src/ATen/native/cuda/linalg/B.cpp",)
    assert set(found.files["torch_cuda"]) == {
        *(f"aten/src/ATen/native/cuda/{name}.cu" for name in ("Small", "Large", "Heavy")),
        "torch/csrc/CudaIPCTypes.cpp",
        f"{ninja_file.GENERATED}/RegisterCUDA_0.cpp",
        f"{ninja_file.GENERATED}/UfuncCUDA_add.cu",
    }
    assert found.left == ("tensorpipe's CUDA channel",)
    windows = ninja_file.sources(root / "s", root / "b", _KEPLER, WINDOWS)
    assert set(windows.files) == {"c10_cuda", "torch_cuda"}
    assert "aten/src/ATen/native/cuda/linalg/B.cpp" in windows.files["torch_cuda"]


def test_attention_is_compiled_for_cards_that_have_kernels_for_it(tmp_path: Path) -> None:
    root = tree(tmp_path)
    name = "aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernels/cutlassF_f32_aligned.cu"
    (root / "s" / name).parent.mkdir(parents=True)
    (root / "s" / name).write_text("", encoding="utf-8")
    old = ninja_file.sources(root / "s", root / "b", _KEPLER, LINUX)
    new = ninja_file.sources(root / "s", root / "b", [Capability(3, 5), Capability(6, 1)], LINUX)
    assert (old.attention, name in old.files["torch_cuda"]) == (False, False)
    assert (new.attention, name in new.files["torch_cuda"]) == (True, True)


def test_a_tree_that_lacks_a_file_of_its_own_lists_is_refused(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / "s" / "torch" / "csrc" / "CudaIPCTypes.cpp").unlink()
    with pytest.raises(BadInput, match=r"lacks `torch/csrc/CudaIPCTypes.cpp`"):
        ninja_file.sources(root / "s", root / "b", _KEPLER, LINUX)


def test_the_architectures_are_written_as_nvcc_and_torch_say_them() -> None:
    targets = parse_arch_list("3.5+PTX;6.1")
    assert ninja_file.gencode(targets) == [
        "-gencode", "arch=compute_35,code=sm_35", "-gencode", "arch=compute_35,code=compute_35",
        "-gencode", "arch=compute_61,code=sm_61",
    ]  # fmt: skip
    assert ninja_file.architectures(targets) == "sm_35 compute_35 sm_61"
    hopper = parse_arch_list("9.0a")
    assert ninja_file.gencode(hopper) == ["-gencode", "arch=compute_90a,code=sm_90a"], "its letter is another target"
    assert ninja_file.architectures(hopper) == "sm_90a"


def test_the_list_of_architectures_is_changed_in_its_place() -> None:
    library = b"\0before\0sm_37 sm_50 sm_60 sm_86\0after\0"
    made = backend.relabelled(library, "sm_35 compute_35")
    assert len(made) == len(library)
    assert made == b"\0before\0sm_35 compute_35\0\0\0\0\0\0\0\0\0after\0".replace(b"\0" * 9, b"\0" * 8)
    with pytest.raises(BadInput, match="does not fit"):
        backend.relabelled(library, "sm_35 compute_35 sm_37 sm_50 sm_52")
    with pytest.raises(BadInput, match="2 times"):
        backend.relabelled(library + library, "sm_35")


def test_the_headers_say_what_was_compiled(tmp_path: Path) -> None:
    path = tmp_path / "torch" / "include" / "ATen" / "cuda" / "CUDAConfig.h"
    path.parent.mkdir(parents=True)
    old = '#define AT_CUDNN_ENABLED() 1\n#define AT_MAGMA_ENABLED() 1\n#define NVCC_FLAGS_EXTRA "-gencode;x"\n'
    path.write_text(old, encoding="utf-8")
    assert ninja_file.config_header(tmp_path, parse_arch_list("3.5")) == (
        "#define AT_CUDNN_ENABLED() 1\n#define AT_MAGMA_ENABLED() 0\n"
        '#define NVCC_FLAGS_EXTRA "-gencode;arch=compute_35,code=sm_35"\n'
    )


def names(*, has: str = "", takes: str = "", weak: str = "") -> Symbols:
    return Symbols(
        defined=frozenset(has.split()),
        undefined=frozenset(takes.split()),
        weak=frozenset(weak.split()),
        unversioned=frozenset(takes.split()),
    )


@pytest.mark.parametrize(
    ("installed", "words"),
    [("2.14.3", None), ("2.21.5", "pins nvidia-nccl-cu11==2.14.3, and 2.21.5 is"), (None, "and nothing is installed")],
)
def test_packages_of_another_version_than_the_bases_are_refused(
    tmp_path: Path, installed: str | None, words: str | None
) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / "nvidia").mkdir(parents=True)
    if installed:
        info = site / f"nvidia_nccl_cu11-{installed}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: nvidia-nccl-cu11\nVersion: {installed}\n"
        (info / "METADATA").write_text(text, encoding="utf-8")
    python = tmp_path / "bin" / "python"
    if words is None:
        assert packages_of(python, base().requires) == site / "nvidia"
        return
    with pytest.raises(BadInput, match=words):
        packages_of(python, base().requires)


def test_a_name_that_the_kept_half_takes_must_be_in_the_new_one() -> None:
    kept = {"libtorch_python.so": names(has="p", takes="a b c")}
    old = {"libtorch_cuda.so": names(has="a b")}
    assert grafted.taken(kept, old, {"libtorch_cuda.so": names(has="a b x")}).state is State.PASS
    lost = grafted.taken(kept, old, {"libtorch_cuda.so": names(has="a")})
    assert lost.state is State.FAIL and "`b`" in lost.found


def test_a_half_of_the_other_abi_is_told_as_such() -> None:
    one, other = "_ZN3c104nameENSt7__cxx1112basic_stringE", "_ZN3c104nameESs"
    kept, old = {"libtorch_python.so": names(takes=one)}, {"libtorch_cuda.so": names(has=one)}
    lost = grafted.taken(kept, old, {"libtorch_cuda.so": names(has=other)})
    assert lost.state is State.FAIL and "different C++ ABIs" in lost.found


def test_a_name_that_the_new_half_takes_must_be_somewhere() -> None:
    kept, old = {"libtorch_cpu.so": names(has="t")}, {"libtorch_cuda.so": names(takes="ncclSend")}
    new = {"libtorch_cuda.so": names(takes="t ncclSend ncclRecv w", weak="w")}
    assert grafted.wanted(kept, old, new, frozenset({"ncclSend", "ncclRecv"})).state is State.PASS
    lost = grafted.wanted(kept, old, new, frozenset({"ncclSend"}))
    assert lost.state is State.FAIL and "`ncclRecv`" in lost.found
    assert grafted.wanted(kept, old, new, None).state is State.UNVERIFIED


def test_the_plan_offers_it_beside_a_build_with_commands_that_follow_each_other() -> None:
    answer = resolve(situation_from_options(["Tesla K40c"], system="linux"), Wish(torch="2.7.1"))
    less = answer.recommended.shorter
    assert less is not None and less.base == "torch 2.7.1+cu118"
    assert any("cuDNN" in each for each in less.loses) and "MAGMA" in " ".join(less.loses)
    first, download, last = (command.words for command in less.commands)
    assert "plan" in first and first[-2:] == ("-o", "plan.toml")
    assert download[-1] == "torch==2.7.1+cu118" and "-d" in download
    assert last[-4:] == ("build", "plan.toml", "--graft", "base")
    written = shorter.after_planning(less, "k40.toml")
    assert [command.words[-3:] for command in written.commands][-1] == ("k40.toml", "--graft", "base")
    assert len(written.commands) == 2


def test_the_plan_offers_it_on_windows_and_says_that_it_was_not_run_there() -> None:
    def less(torch: str) -> Shorter | None:
        return resolve(situation_from_options(["Tesla K40c"], system="windows"), Wish(torch=torch)).recommended.shorter

    found = less("2.7.1")
    assert found is not None and found.base == "torch 2.7.1+cu118"
    assert found.unverified.startswith("not yet run on Windows")
    assert found.commands[1].words[-1] == "torch==2.7.1+cu118"
    assert less("2.3.1") is None, "the headers of its cuDNN are missing"


def test_a_gpu_half_asks_for_less_room_than_a_complete_build() -> None:
    complete = costs.build_disk("2.7.1", cuda=True)
    half = costs.build_disk("2.7.1", cuda=True, half=True)
    row = costs.source_build(Version("2.7"))
    assert row is not None
    assert (complete, half) == tuple(int(each.disk_gb * 1024**3) for each in (row, costs.gpu_half(row)))
    assert half < complete


def test_nvtx_is_taken_as_headers_where_the_release_does(tmp_path: Path) -> None:
    """Else the half wants `nvtxMarkA`, which no library of the base has, and `import torch` ends there."""
    for path in ("c10/cuda/CMakeLists.txt", "caffe2/CMakeLists.txt", "cmake/Dependencies.cmake"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("", encoding="utf-8")
    cuda = tmp_path / "cmake" / "public" / "cuda.cmake"
    cuda.parent.mkdir(parents=True)
    cuda.write_text("target_compile_definitions(torch::nvtx3 INTERFACE TORCH_CUDA_USE_NVTX3)\n", encoding="utf-8")
    assert ninja_file.from_tree(tmp_path, (*LINUX.by_tree, *ninja_file.BY_TREE)) == ["TORCH_CUDA_USE_NVTX3"]
    cuda.write_text("set_property(TARGET torch::nvtoolsext)\n", encoding="utf-8")
    assert ninja_file.from_tree(tmp_path, (*LINUX.by_tree, *ninja_file.BY_TREE)) == []
    (tmp_path / "cmake" / "Dependencies.cmake").write_text("INTERFACE TORCH_CUDA_USE_NVTX3)\n", encoding="utf-8")
    assert ninja_file.from_tree(tmp_path, (*LINUX.by_tree, *ninja_file.BY_TREE)) == ["TORCH_CUDA_USE_NVTX3"], "from 2.9"


def test_headers_of_the_cpu_half_s_library_are_brought() -> None:
    """`EmbeddingBag.h` of 2.7 includes FBGEMM's, also where a GPU's file includes it."""
    assert "third_party/fbgemm" in ninja_file.SUBMODULES
