"""The environment of a build, for replayed machines: what the hand-made scripts meant, variable by variable."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle.build.configure.environment import (
    Action,
    BuildEnvironment,
    BuildPlaces,
    VariableChange,
    compute,
    difference,
)
from rekindle.build.configure.options import Choices
from rekindle.build.configure.render import cmd_value, render
from rekindle.build.configure.request import BuildCudnn, BuildFile, BuildRequest, resolve
from rekindle.build.run import build
from rekindle.core.errors import BadInput, MissingTool
from rekindle.core.version import Version
from rekindle.machine.snapshot import load
from rekindle.machine.toolchain.msvc import VcVars
from support.command import rekindle_command

MACHINES = Path(__file__).resolve().parents[1] / "machines"
CUDA = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"


def request_for(name: str, **wanted: Any) -> BuildRequest:
    return resolve(BuildFile(source=r"C:\src\pytorch", **wanted), load(MACHINES / f"{name}.json"))


def after(request: BuildRequest, name: str, **choices: Any) -> dict[str, str]:
    """The environment that the build runs in, over the machine's own."""
    before = load(MACHINES / f"{name}.json").environment
    _, environment, computed, _ = build.prepare(request, Choices(**choices), r"C:\rk\b", before, capture=False)
    assert environment.vcvars is not None
    return computed


@pytest.fixture(scope="module")
def k40c() -> dict[str, str]:
    request = request_for("k40c-windows", torch="1.12.1", cuda=Version("11.4"), arch_list="3.5")
    # The guides copy cuDNN 8.7.0 into the toolkit; the recorded machine has none for this card.
    request = msgspec.structs.replace(request, cudnn=BuildCudnn(root=rf"{CUDA}\v11.4", version=Version("8.7.0")))
    return after(request, "k40c-windows")


@pytest.fixture(scope="module")
def rtx5070() -> dict[str, str]:
    request = request_for("rtx5070-windows", torch="2.7.1", cuda=Version("12.9"), arch_list="12.0")
    return after(request, "rtx5070-windows")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        # The first guide's batch file
        ("TORCH_CUDA_ARCH_LIST", "3.5"),
        ("USE_CUDA", "1"),
        ("USE_CUDNN", "1"),
        ("USE_NINJA", "1"),
        ("USE_KINETO", "0"),
        # The second guide's
        ("CC", "cl"),
        ("CXX", "cl"),
        ("CUDA_PATH", rf"{CUDA}\v11.4"),
        ("CUDNN_INCLUDE_DIR", rf"{CUDA}\v11.4\include"),
        ("CUDNN_LIBRARY", rf"{CUDA}\v11.4\lib\x64"),
        # Meant by them, and never set
        ("CUDA_HOME", rf"{CUDA}\v11.4"),
        ("BUILD_TEST", "0"),
        ("INSTALL_TEST", "0"),
        ("DISTUTILS_USE_SDK", "1"),
        ("PYTHONUTF8", "1"),
        ("VSLANG", "1033"),
        ("CMAKE_NINJA_FORCE_RESPONSE_FILE", "1"),
        ("TORCH_NVCC_FLAGS", "-Xfatbin -compress-all"),
        ("PYTORCH_BUILD_VERSION", "1.12.1+cu114.cudnn870.sm35"),
        ("PYTORCH_BUILD_NUMBER", "1"),
        ("BLAS", "MKL"),
        ("INTEL_MKL_DIR", r"C:\rk\b\env\Library"),
        ("TEMP", r"C:\rk\b\t"),
        ("TMP", r"C:\rk\b\t"),
    ],
)
def test_the_k40c_gets_what_the_guides_for_it_meant(k40c: dict[str, str], name: str, meant: str) -> None:
    assert k40c[name] == meant


@pytest.mark.parametrize(
    "name",
    ["USE_CUPTI", "CMAKE_ARGS", "CUDA_TOOLKIT_ROOT_DIR", "CUDNN_LIB_DIR", "ONEAPI_ROOT", "ICPP_COMPILER", "ICX", "ICC",
     "CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "MAX_JOBS", "USE_MKL", "CUDA_ROOT"],
)  # fmt: skip
def test_what_does_nothing_or_is_stale_is_not_there(k40c: dict[str, str], name: str) -> None:
    assert name not in k40c


def test_the_chosen_cuda_comes_first_and_its_rival_is_gone(k40c: dict[str, str], rtx5070: dict[str, str]) -> None:
    first, second = k40c["PATH"].split(";"), rtx5070["PATH"].split(";")
    assert first[0] == rf"{CUDA}\v11.4\bin" and not [entry for entry in first if "v11.8" in entry]
    assert second[0] == rf"{CUDA}\v12.9\bin" and not [entry for entry in second if "v12.3" in entry]
    assert r"C:\Windows\System32" in first and r"C:\Program Files\Git\cmd" in second


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("USE_CUDA", "1"),
        ("TORCH_CUDA_ARCH_LIST", "12.0"),
        ("CUDA_PATH", rf"{CUDA}\v12.9"),
        ("CUDA_HOME", rf"{CUDA}\v12.9"),
        ("USE_DISTRIBUTED", "0"),
        ("CMAKE_GENERATOR", "Ninja"),
        ("CMAKE_NINJA_FORCE_RESPONSE_FILE", "1"),
        ("PYTORCH_BUILD_VERSION", "2.7.1+cu129.sm120"),
    ],
)
def test_the_rtx_5070_gets_what_the_final_script_for_it_meant(rtx5070: dict[str, str], name: str, meant: str) -> None:
    assert rtx5070[name] == meant


@pytest.mark.parametrize(
    "name",
    ["USE_CAFFE2", "BUILD_CAFFE2", "USE_PTHREADPOOL", "CAFFE2_USE_PTHREADPOOL", "USE_SYSTEM_PTHREADPOOL", "USE_MPI",
     "CMAKE_CUDA_ARCHITECTURES", "CMAKE_C_USE_RESPONSE_FILE_FOR_OBJECTS", "CMAKE_CXX_FLAGS", "CMAKE_CUDA_FLAGS",
     "CMAKE_POLICY_VERSION_MINIMUM"],
)  # fmt: skip
def test_what_the_final_script_set_in_vain_is_left_out(rtx5070: dict[str, str], name: str) -> None:
    assert name not in rtx5070


def test_cmake_4_with_an_older_release_gets_the_policy_and_a_newer_release_does_not() -> None:
    old = request_for("rtx5070-windows", torch="2.5.1", cuda=Version("12.9"), arch_list="9.0")
    assert after(old, "rtx5070-windows")["CMAKE_POLICY_VERSION_MINIMUM"] == "3.5"


def test_the_toolset_is_one_that_this_cuda_takes() -> None:
    assert str(request_for("k40c-windows", cuda=Version("11.4"), arch_list="3.5").compiler.toolset) == "14.29.30133"
    with pytest.raises(MissingTool, match=r"14\.44"):
        # VS 2022 17.14 has only 14.44, which CUDA 12.3 refuses.
        request_for("rtx5070-windows", cuda=Version("12.3"), arch_list="9.0")


def test_vcvars_is_called_with_the_exact_toolset_where_it_is_not_captured() -> None:
    request = request_for("k40c-windows", torch="1.12.1", cuda=Version("11.4"), arch_list="3.5")
    command = compute(request, places=BuildPlaces(temp=r"C:\t")).vcvars
    assert command is not None and command.endswith('vcvarsall.bat" x64 -vcvars_ver=14.29.30133')


def test_captured_variables_lie_between_cuda_and_the_rest() -> None:
    request = request_for("k40c-windows", torch="1.12.1", cuda=Version("11.4"), arch_list="3.5")
    captured = VcVars(toolset=Version("14.29.30133"), prepends={"PATH": (r"C:\VC\bin",)}, sets={"VCX": "1"})
    made = compute(request, places=BuildPlaces(temp=r"C:\t"), vcvars=captured).over(
        {"Path": r"C:\Git\usr\bin;C:\Windows"}
    )
    entries = made["Path"].split(";")
    assert entries.index(rf"{CUDA}\v11.4\bin") < entries.index(r"C:\VC\bin") < entries.index(r"C:\Git\usr\bin")
    assert made["VCX"] == "1" and "PATH" not in made, "the name keeps its spelling"


def test_clang_cl_keeps_cl_as_the_host_of_nvcc_and_another_compiler_is_refused() -> None:
    request = request_for("k40c-windows", cuda=Version("11.4"), arch_list="3.5", compiler="clang-cl", torch="1.12.1")
    made = compute(request, places=BuildPlaces(temp=r"C:\t"))
    assert made.value("CXX") == "clang-cl"
    assert (made.value("CUDAHOSTCXX") or "").endswith(r"14.29.30133\bin\Hostx64\x64\cl.exe")
    with pytest.raises(BadInput, match="gcc"):
        request_for("k40c-windows", cuda=Version("11.4"), arch_list="3.5", compiler="gcc")


def test_debians_cuda_wins_over_another_in_usr_local_without_hiding_the_rest() -> None:
    request = resolve(
        BuildFile(source="/src", torch="1.13.1", cuda=Version("11.8"), arch_list="3.5"),
        load(MACHINES / "debian-two-cudas.json"),
    )
    made = compute(request, places=BuildPlaces(temp="/t")).over(
        {"PATH": "/home/me/env/bin:/usr/local/bin:/usr/bin:/bin"}
    )
    entries = made["PATH"].split(":")
    assert entries.index("/usr/bin") < entries.index("/usr/local/bin"), "or nvcc 11.8 calls ptxas 13.0"
    assert entries.index("/home/me/env/bin") < entries.index("/usr/bin")
    assert made["CUDA_HOME"] == "/usr" and made["CUDACXX"] == "/usr/bin/nvcc"


def test_a_newer_release_builds_on_an_arm_processor_without_sve() -> None:
    """2.15 stops at configure there: "No SVE support on this machine"."""
    machine = msgspec.structs.replace(load(MACHINES / "debian-two-cudas.json"), arch="aarch64")
    for torch, said in (("2.15.0", "1"), ("2.11.0", None)):
        request = resolve(BuildFile(source="/src", torch=torch), machine)
        assert compute(request, places=BuildPlaces(temp="/t")).value("BUILD_IGNORE_SVE_UNAVAILABLE") == said


def test_nothing_is_applied_to_this_process() -> None:
    before = dict(os.environ)
    request = request_for("k40c-windows", torch="1.12.1", cuda=Version("11.4"), arch_list="3.5")
    compute(request, places=BuildPlaces(temp=r"C:\t")).over(os.environ)
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    "words",
    [("--cuda", "x.y"), ("--cuda", "11.4", "--python", "3.x"), ("--cuda", "11.4", "--toolset", "newest")],
)
def test_a_version_that_is_none_is_a_mistake_and_not_a_fault(words: tuple[str, ...]) -> None:
    seen = rekindle_command("env", "--machine", str(MACHINES / "k40c-windows.json"), "--torch", "1.12.1", *words)
    assert seen.code == 2 and "hint: write " in seen.err


@pytest.mark.parametrize("listed", ["abc", "3.5;+PTX", "3.5;x"])
def test_a_list_that_names_no_architectures_is_refused(listed: str) -> None:
    with pytest.raises(BadInput, match="list of architectures"):
        request_for("k40c-windows", cuda=Version("11.4"), arch_list=listed)


def test_every_difference_has_its_reason() -> None:
    request = request_for("rtx5070-windows", torch="2.7.1", cuda=Version("12.9"), arch_list="12.0")
    machine = load(MACHINES / "rtx5070-windows.json")
    found = difference(machine.environment, compute(request, places=BuildPlaces(temp=r"C:\t")))
    assert found and [each.name for each in found if not each.why] == []
    assert {each.name: each.after for each in found}["VSCMD_VER"] is None, "another prompt's toolset is not mixed in"


ODD = r"C:\a b\100% (x86) & co ^!'$(echo hi)`x`"


def odd(system: str, value: str) -> BuildEnvironment:
    return BuildEnvironment(
        system=system, changes=(VariableChange(name="RK_ODD", action=Action.SET, value=value, why="odd"),)
    )


def test_a_posix_shell_reads_back_exactly_what_was_meant(tmp_path: Path) -> None:
    if os.name == "nt":
        return
    environment = BuildEnvironment(
        system="linux",
        changes=(
            VariableChange(name="RK_ODD", action=Action.SET, value=ODD, why="50% odd; $(exit 3)"),
            VariableChange(name="PATH", action=Action.DROP, value="/other/cuda/bin"),
            VariableChange(name="PATH", action=Action.BEHIND, value="/usr/local/bin"),
            VariableChange(name="PATH", action=Action.PREPEND, value="/my cuda/bin"),
            VariableChange(name="RK_GONE", action=Action.UNSET),
        ),
    )
    script = render(environment, "sh") + 'printf "%s\\n%s\\n%s\\n" "$RK_ODD" "$PATH" "${RK_GONE-unset}"\n'
    start = {"PATH": "/other/cuda/bin:/usr/local/bin:/usr/bin:/bin", "RK_GONE": "x"}
    said = subprocess.run(["/bin/sh", "-c", script], env=start, capture_output=True, text=True, check=True)
    expected = environment.over(start)
    assert said.stdout.splitlines() == [ODD, expected["PATH"], "unset"]


def test_a_batch_file_doubles_percent_signs_and_refuses_quotes() -> None:
    assert 'set "RK_ODD=' + ODD.replace("%", "%%") + '"' in render(odd("windows", ODD), "cmd")
    with pytest.raises(BadInput):
        cmd_value('a"b')


def test_powershell_quotes_double_only_the_single_quote() -> None:
    assert "$Env:RK_ODD = '" + ODD.replace("'", "''") + "'" in render(odd("windows", ODD), "ps1")


@pytest.mark.parametrize("shell", ["--cmd", "--ps1", "--sh"])
def test_the_command_line_prints_ascii_for_every_shell(shell: str) -> None:
    snapshot = str(MACHINES / "k40c-windows.json")
    seen = rekindle_command("env", "--machine", snapshot, "--torch", "1.12.1", "--cuda", "11.4", shell)
    assert seen.code == 0 and seen.out.isascii()
    assert "TORCH_CUDA_ARCH_LIST" in seen.out and "3.5" in seen.out


def test_the_json_answer_has_before_and_after_of_every_variable() -> None:
    snapshot = str(MACHINES / "k40c-windows.json")
    answer = rekindle_command("env", "--machine", snapshot, "--torch", "1.12.1", "--cuda", "11.4", "--json").json()
    path = next(each for each in answer["variables"] if each["name"] == "PATH")
    assert "v11.8" in path["before"] and "v11.8" not in path["after"] and path["why"]


def test_env_and_plan_list_the_same_architectures() -> None:
    """`plan` said 12.0+PTX and `env` 12.0, for the same card, driver and CUDA."""
    snapshot = str(MACHINES / "rtx5070-windows.json")
    words = ("--machine", snapshot, "--torch", "2.7.1", "--cuda", "12.9")
    env = rekindle_command("env", *words, "--json").json()
    listed = next(each["after"] for each in env["variables"] if each["name"] == "TORCH_CUDA_ARCH_LIST")
    planned = rekindle_command("plan", *words, "--prefer", "newest", "--json").json()
    assert {route["arch_list"] for route in planned["routes"] if route["route"] == "source-build"} == {listed}
