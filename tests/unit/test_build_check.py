"""The check after configure: what CMake wrote, held against the plan."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rekindle.build.configure import backends, preflight
from rekindle.build.configure.backends import check_configured as check
from rekindle.build.configure.cmake_result import CMakeResult, gencode_targets, parse_cache, parse_ninja, parse_summary
from rekindle.build.configure.options import Options, Resolved
from rekindle.build.configure.request import BuildCudnn, BuildRequest, Compiler, Cuda
from rekindle.build.configure.tools import Tool, Tools
from rekindle.build.governor.memory import Sample
from rekindle.build.run.folders import Folders
from rekindle.core.findings import State
from rekindle.core.version import Version

REQUEST = BuildRequest(
    source="/src",
    system="linux",
    arch="aarch64",
    python="/usr/bin/python3",
    compiler=Compiler(kind="gcc", cxx="/usr/bin/g++-11", c="/usr/bin/gcc-11", cuda_host="/usr/bin/g++-11"),
    cuda=Cuda(root="/usr/local/cuda-11.8", nvcc="/usr/local/cuda-11.8/bin/nvcc", version=Version("11.8.89")),
    arch_list="3.5",
)
GOOD = CMakeResult(
    cache={
        "CMAKE_CXX_COMPILER": "/usr/bin/g++-11",
        "CMAKE_CUDA_COMPILER": "/usr/local/cuda-11.8/bin/nvcc",
        "USE_CUDA": "ON",
    },
    compilers={"CMAKE_CUDA_COMPILER_VERSION": "11.8.89"},
    summary={},
    gpu_flags=(("sm_35",),),
    cuda_objects=221,
    generator="Ninja",
)


def states(request: BuildRequest = REQUEST, result: CMakeResult = GOOD, *options: Resolved) -> dict[str, State]:
    return {found.id: found.state for found in check(request, Options(resolved=options), result)}


def test_a_configure_run_that_did_what_the_plan_says_passes() -> None:
    found = states()
    assert set(found.values()) == {State.PASS}
    assert {"generator", "host-compiler", "cuda", "nvcc", "architectures"} <= found.keys()


def test_cuda_switched_off_with_only_a_warning_is_caught() -> None:
    off = GOOD._replace(summary={"USE_CUDA": "OFF"})
    assert states(result=off)["cuda"] is State.FAIL, "the summary is later than the cache"
    assert states(result=GOOD._replace(cache={**GOOD.cache, "USE_CUDA": "0"}))["cuda"] is State.FAIL
    gone = {"CMAKE_CXX_COMPILER": "/usr/bin/g++-11", "CMAKE_CUDA_COMPILER": "CMAKE_CUDA_COMPILER-NOTFOUND"}
    assert states(result=GOOD._replace(cache=gone))["cuda"] is State.FAIL


def test_another_nvcc_is_caught() -> None:
    other = GOOD._replace(compilers={"CMAKE_CUDA_COMPILER_VERSION": "13.0.88"})
    assert states(result=other)["nvcc"] is State.FAIL


@pytest.mark.parametrize(
    ("flags", "state"),
    [
        (("sm_35",), State.PASS),
        (("sm_50",), State.FAIL),
        ((), State.FAIL),
        (("sm_35", "sm_50"), State.WARN),
        (("sm_35", "compute_35"), State.WARN),
    ],
)
def test_a_lost_architecture_fails_and_one_too_many_warns(flags: tuple[str, ...], state: State) -> None:
    result = GOOD._replace(gpu_flags=(flags,))
    assert states(result=result)["architectures"] is state


def test_one_group_of_files_that_lost_the_architecture_is_enough() -> None:
    flags = (("sm_35",), ("sm_52",))
    assert states(result=GOOD._replace(gpu_flags=flags))["architectures"] is State.FAIL


def test_another_compiler_is_caught() -> None:
    result = GOOD._replace(cache={**GOOD.cache, "CMAKE_CXX_COMPILER": "/opt/other/g++-12"})
    assert states(result=result)["host-compiler"] is State.FAIL


def test_cudnn_that_was_not_found_or_is_another_is_caught() -> None:
    wanted = msgspec.structs.replace(REQUEST, cudnn=BuildCudnn(root="/cudnn", version=Version("8.7.0")))
    assert states(wanted, GOOD._replace(summary={"USE_CUDNN": "OFF"}))["cudnn"] is State.FAIL
    assert states(wanted, GOOD._replace(summary={"cuDNN version": "8.9.2"}))["cudnn"] is State.FAIL
    assert states(wanted, GOOD._replace(summary={"cuDNN version": "8.7.0"}))["cudnn"] is State.PASS
    assert states(wanted, GOOD)["cudnn"] is State.UNVERIFIED, "not said is not passed"


def test_the_blas_and_every_switch_are_read_back() -> None:
    blas = Resolved(name="BLAS", value="MKL", origin="profile", via="environment")
    wanted = Resolved(name="USE_KINETO", value="ON", origin="user", via="environment")
    result = GOOD._replace(summary={"BLAS_INFO": "open", "USE_KINETO": "OFF"})
    found = states(REQUEST, result, blas, wanted)
    assert found["blas"] is State.FAIL
    assert found["option-USE_KINETO"] is State.FAIL, "a person asked for it"


def test_no_cache_at_all_fails() -> None:
    assert set(states(result=CMakeResult({}, {}, {})).values()) == {State.FAIL}


def test_cmake_cache_lines_with_types_quotes_and_equals_signs() -> None:
    text = '// help\n#a comment\nUSE_CUDA:BOOL=ON\nFLAGS:STRING=-DX=1 -DY=2\n"ODD:NAME":STRING=x\nEMPTY:PATH=\n'
    found = parse_cache(text)
    assert found["USE_CUDA"] == "ON" and found["FLAGS"] == "-DX=1 -DY=2" and found["EMPTY"] == ""


def test_the_summary_is_read_with_and_without_the_logs_timestamps() -> None:
    text = "--   USE_CUDA              : OFF\n2026-11-15T03:16:44.207Z --   CUDA version : 11.8\n-- Configuring done\n"
    assert parse_summary(text) == {"USE_CUDA": "OFF", "CUDA version": "11.8"}


def test_a_plain_project_is_told_the_letter_of_an_architecture() -> None:
    tool = Tool(name="x", path="x")
    job = backends.BackendJob(
        request=msgspec.structs.replace(REQUEST, torch=None, arch_list="9.0a;8.6+PTX"),
        options=Options(resolved=()),
        tools=Tools(cmake=tool, ninja=tool, python=tool, cxx=tool),
        source="s", build="b", stage="i", python="python", version="1",
    )  # fmt: skip
    assert "-DCMAKE_CUDA_ARCHITECTURES=90a-real;86-real;86-virtual" in backends.cmake_arguments(job)


def test_architectures_in_the_spellings_of_pytorch_and_of_cmake() -> None:
    assert gencode_targets("-Xfatbin -compress-all -gencode arch=compute_35,code=sm_35") == ("sm_35",)
    both = gencode_targets('"--generate-code=arch=compute_50,code=[compute_50,sm_50]"')
    assert set(both) == {"sm_50", "compute_50"}
    assert gencode_targets("-gencode;arch=compute_90a,code=sm_90a") == ("sm_90a",)


def test_only_the_flags_of_cuda_compiles_count() -> None:
    text = (
        "build a.o: CXX_COMPILER__x a.cpp\n  FLAGS = -O2\n\n"
        "build b.o: CUDA_COMPILER__x_unscanned_Release b.cu\n  FLAGS = --generate-code=arch=compute_35,code=[sm_35]\n"
    )
    assert parse_ninja(text) == ((("sm_35",),), 1)


def test_a_folder_that_has_no_short_name_is_refused_before_anything_is_done() -> None:
    """On Windows; elsewhere nvcc takes what the shell takes."""
    from pathlib import PurePosixPath

    for root, expected in (
        ("C:/Users/Jane Doe/rk", {"root-spelling"}),
        ("C:/Bücher", {"root-spelling"}),
        ("C:/" + "x" * 70, {"root-length"}),
        ("C:/rk", set()),
    ):
        folders = Folders(PurePosixPath(root))  # type: ignore[arg-type]
        windows = msgspec.structs.replace(REQUEST, system="windows", torch=None)
        found = list(preflight._places(windows, folders))
        assert {item.id for item in found} == expected
        assert all(item.fix and "--work" in item.fix.text for item in found)
        assert not list(preflight._places(msgspec.structs.replace(REQUEST, torch=None), folders))


def test_an_mkl_without_openmp_is_named_before_the_build(tmp_path: Path) -> None:
    """FindMKL takes the one with a single thread without a word."""
    asked = msgspec.structs.replace(
        REQUEST, system="windows", torch="2.7.1", mkl=str(tmp_path / "mkl"), openmp=str(tmp_path / "compiler")
    )
    (found,) = preflight._openmp(asked)
    assert found.state is State.WARN and "libiomp5md.lib" in found.found
    for folder in asked.openmp_libraries[:1]:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "libiomp5md.lib").touch()
    assert not list(preflight._openmp(asked))
    assert not list(preflight._openmp(msgspec.structs.replace(asked, mkl=None)))


@pytest.mark.parametrize(
    ("total", "available", "states"),
    [(16, 12, []), (16, 1, [State.WARN]), (3, 3, [State.WARN]), (1.5, 1, [State.FAIL]), (None, None, [])],
)
def test_memory_that_cannot_hold_one_compile_is_said_before_it_is_killed(
    total: float | None, available: float | None, states: list[State]
) -> None:
    sample = Sample(
        total=int(total * 1024**3) if total else None, available=int(available * 1024**3) if available else None
    )
    torch = msgspec.structs.replace(REQUEST, torch="1.12.1")
    assert [item.state for item in preflight._memory(torch, sample)] == states
    assert not list(preflight._memory(msgspec.structs.replace(REQUEST, torch=None), sample))
