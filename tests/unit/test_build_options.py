"""Options of a build: profiles, rules, a person's own, and names that do not exist."""

from __future__ import annotations

from typing import Any

import pytest

from rekindle.build.configure.options import describe, parse, resolve, switch
from rekindle.build.configure.request import BuildCudnn, BuildRequest, Compiler, Cuda
from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge.torch.releases import torch_releases
from support.command import rekindle_command

PROFILES = ("fast", "compat", "minimal")
CL = Compiler(kind="cl", cxx="cl", c="cl", cuda_host="cl")
GCC = Compiler(kind="gcc", cxx="g++", c="gcc", cuda_host="g++")


def request(torch: str = "1.12.1", cuda: str | None = "11.4", arch_list: str = "3.5", **more: Any) -> BuildRequest:
    values: dict[str, Any] = {"system": "windows", "arch": "x86_64", "compiler": CL, "python": "python"}
    chosen = Cuda(root="c", nvcc="nvcc", version=Version(cuda)) if cuda else None
    return BuildRequest(source="s", torch=torch, cuda=chosen, arch_list=arch_list, **{**values, **more})


def values(asked: BuildRequest, **overrides: str) -> dict[str, str]:
    return {each.name: each.value for each in resolve(asked, overrides).resolved}


def test_tests_are_never_built_by_default() -> None:
    for profile in PROFILES:
        found = values(request(profile=profile))
        assert found["BUILD_TEST"] == "OFF" and found["INSTALL_TEST"] == "OFF"


def test_fast_takes_mkl_and_onednn_compat_no_onednn() -> None:
    fast, compat = values(request(profile="fast")), values(request(profile="compat"))
    assert (fast["BLAS"], fast["USE_MKLDNN"]) == ("MKL", "ON")
    # On Windows nothing brings OpenBLAS, and MKL chooses its code by the processor.
    assert (compat["BLAS"], compat["USE_MKLDNN"], compat["USE_FBGEMM"]) == ("MKL", "OFF", "OFF")


def test_no_profile_ever_asks_msvc_for_sse41() -> None:
    for profile in PROFILES:
        found = resolve(request(profile=profile)).resolved
        assert not [each for each in found if "arch:SSE" in each.value]
    with pytest.raises(UsageError, match="no such switch"):
        resolve(request(), {"CMAKE_CXX_FLAGS": "/arch:SSE4.1"})


def test_cudnn_is_on_when_the_plan_has_one_and_off_when_not() -> None:
    assert values(request())["USE_CUDNN"] == "OFF"
    assert values(request(cudnn=BuildCudnn(root="c", version=Version("8.7.0"))))["USE_CUDNN"] == "ON"


def test_attention_kernels_follow_the_cards() -> None:
    kepler = values(request("2.7.1", "11.8", "3.5"))
    assert kepler["USE_FLASH_ATTENTION"] == "OFF" and kepler["USE_MEM_EFF_ATTENTION"] == "OFF"
    pascal = values(request("2.7.1", "12.6", "6.1"))
    assert pascal["USE_FLASH_ATTENTION"] == "OFF" and "USE_MEM_EFF_ATTENTION" not in pascal
    hopper = values(request("2.7.1", "12.6", "6.1;9.0", system="linux", compiler=GCC))
    assert "USE_FLASH_ATTENTION" not in hopper, "the release's own default holds"


def test_distributed_stays_on_where_it_works() -> None:
    assert values(request())["USE_DISTRIBUTED"] == "OFF"
    assert "USE_DISTRIBUTED" not in values(request(system="linux", compiler=GCC, arch_list="8.6", cuda="11.8"))


def test_a_compiler_cache_that_happens_to_be_installed_is_not_taken_behind_our_back() -> None:
    """Met for real: ccache was installed between two runs, and all of protobuf was compiled again."""
    assert values(request(system="linux", compiler=GCC, arch_list="3.5", cuda="11.8"))["USE_CCACHE"] == "OFF"


def test_every_profile_sets_only_options_that_the_release_has() -> None:
    for release in torch_releases():
        names = {each.name for each in describe(release.minor)}
        for profile in PROFILES:
            found = resolve(request(release.newest, "12.6", "9.0", profile=profile)).resolved
            assert {each.name for each in found} <= names, (release.minor, profile)


def test_a_persons_own_value_wins() -> None:
    found = {each.name: each for each in resolve(request(), {"USE_KINETO": "1"}).resolved}["USE_KINETO"]
    assert (found.value, found.origin) == ("1", "user")


@pytest.mark.parametrize(
    ("name", "torch", "nearest"),
    [
        ("USE_CUDDN", "1.12.1", "USE_CUDNN"),
        ("USE_MEM_EFF_ATENTION", "2.7.1", "USE_MEM_EFF_ATTENTION"),
        ("USE_CAFFE2", "1.12.1", "BUILD_CAFFE2"),
        ("USE_CUPTI", "1.12.1", "USE_KINETO"),
    ],
)
def test_a_name_that_does_not_exist_is_an_error_with_the_real_one(name: str, torch: str, nearest: str) -> None:
    with pytest.raises(UnknownName) as error:
        resolve(request(torch), {name: "1"})
    assert nearest in (error.value.hint or "") and "--allow-unknown" in (error.value.hint or "")


def test_an_option_of_other_releases_is_an_error_here() -> None:
    with pytest.raises(UnknownName):
        resolve(request("2.7.1", "12.6", "9.0"), {"BUILD_CAFFE2": "0"})
    assert values(request("1.12.1"), BUILD_CAFFE2="1")["BUILD_CAFFE2"] == "1"


def test_allow_unknown_passes_it_on_with_a_warning() -> None:
    found = resolve(request(), {"USE_WISHES": "1"}, allow_unknown=True)
    assert found.value("USE_WISHES") == "1"
    assert [each.state for each in found.findings] == [State.WARN]


@pytest.mark.parametrize("name", ["USE_PTHREADPOOL", "CMAKE_C_USE_RESPONSE_FILE_FOR_OBJECTS", "USE_MKL"])
def test_an_option_that_does_nothing_is_said_to_do_nothing(name: str) -> None:
    found = resolve(request(), {name: "1"}).findings
    assert [each.id for each in found] == ["option-no-effect"] and found[0].why


def test_what_the_plan_computes_cannot_be_set_as_an_option() -> None:
    with pytest.raises(UsageError, match="computed from the plan"):
        resolve(request(), {"TORCH_CUDA_ARCH_LIST": "8.9"})


def test_what_setup_py_does_not_hand_on_goes_to_cmake_itself() -> None:
    asked = {"ATEN_NO_TEST": "1", "ONNX_ML": "0", "USE_KINETO": "0", "BLAS": "MKL"}
    found = {each.name: each.via for each in resolve(request(), asked).resolved}
    assert [found[name] for name in asked] == ["cmake", "environment", "environment", "environment"]
    newer = {each.name: each.via for each in resolve(request("2.14.1", "12.6", "9.0")).resolved}
    assert set(newer.values()) == {"cmake"}


def test_pairs_are_read_as_cmake_reads_them() -> None:
    assert parse(("A=1", "B:BOOL=ON", "C=x=y", "D=")) == {"A": "1", "B": "ON", "C": "x=y", "D": ""}
    with pytest.raises(UsageError, match="no value"):
        parse(("A",))


def test_truth_values_are_cmakes() -> None:
    assert [switch(text) for text in ("ON", "1", "off", "", "MKL", "2")] == [True, True, False, False, None, None]


def test_the_list_of_options_has_defaults_and_releases() -> None:
    answer = rekindle_command("env", "--options", "--torch", "1.12.1", "--json").json()
    rows = {each["name"]: each for each in answer["options"]}
    assert rows["BUILD_CAFFE2"]["last"] == "2.3" and rows["BUILD_CAFFE2"]["default"] == "OFF"
    assert "USE_MEM_EFF_ATTENTION" not in rows, "it came with 2.2"
    assert rekindle_command("env", "--options", "--torch", "1.12.1").code == 0


def test_openblas_is_asked_for_complex_dot_products_in_its_own_way() -> None:
    """Met for real: named as BLAS, OpenBLAS is not asked by PyTorch, and every complex dot product was 0."""
    linux = {"system": "linux", "compiler": GCC, "cuda": "11.8"}
    for profile in ("minimal", "compat"):
        found = {each.name: each for each in resolve(request("1.13.1", profile=profile, **linux)).resolved}
        assert (found["BLAS"].value, found["BLAS_USE_CBLAS_DOT"].value) == ("OpenBLAS", "ON")
        assert found["BLAS_USE_CBLAS_DOT"].via == "cmake"
    assert "BLAS_USE_CBLAS_DOT" not in values(request(profile="minimal")), "MKL on Windows"
    kept = resolve(request("1.13.1", profile="minimal", **linux), {"BLAS_USE_CBLAS_DOT": "OFF"}, allow_unknown=True)
    assert kept.value("BLAS_USE_CBLAS_DOT") == "OFF", "a person's own word holds"
