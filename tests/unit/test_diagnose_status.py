"""CUDA's own errors and the statuses of its libraries, in each spelling: the name, the text, the number."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rekindle.diagnose.diagnosis import diagnose_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).parents[1] / "data" / "cuda_status.toml"
TOLD = tomllib.loads(TABLE.read_text(encoding="utf-8"))
ROWS, TOOLS = TOLD["status"], TOLD["tool"]
FRAME = '  File "/env/lib/python3.11/site-packages/torch/nn/functional.py", line 5, in linear\n'


@pytest.mark.parametrize("row", ROWS, ids=[row["cause"] for row in ROWS])
def test_a_status_stands_for_its_cause(row: dict[str, object]) -> None:
    says = row["says"]
    assert isinstance(says, list)
    found = {said: diagnose_text(f"{FRAME}RuntimeError: {said}\n") for said in says}
    first = {said: each.causes[0].label if each.causes else each.outcome.value for said, each in found.items()}
    assert first == dict.fromkeys(says, row["cause"])


@pytest.mark.parametrize("row", TOOLS, ids=[row["cause"] for row in TOOLS])
def test_what_a_tool_of_the_toolkit_says_stands_for_its_cause(row: dict[str, list[str]]) -> None:
    log = "/usr/local/cuda/bin/nvcc -c k.cu -o k.o\n{}\nninja: build stopped: subcommand failed.\n"
    found = {said: diagnose_text(log.format(said)).causes for said in row["says"]}
    assert {said: causes[0].label if causes else None for said, causes in found.items()} == dict.fromkeys(
        row["says"], row["cause"]
    )


def _fix(log: str) -> str:
    fix = diagnose_text(log).causes[0].whole
    return " ".join((fix.text, *fix.commands))


def test_a_container_is_told_the_driver_it_asks_for() -> None:
    log = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver\n"
    assert "550.54.14" in _fix(log)


def test_an_nvcc_that_lacks_what_the_named_toolkit_has_is_another_one() -> None:
    fatal = "nvcc fatal   : Unsupported gpu architecture 'compute_120a'\n"
    assert "another nvcc that ran" in _fix(f"export PATH=$PATH:/usr/local/cuda-13.0/bin\n{fatal}")
    assert "another nvcc that ran" not in _fix(f"/usr/local/cuda-12.4/bin/nvcc -c k.cu\n{fatal}")


def test_torchs_own_list_names_what_it_takes() -> None:
    told = _fix("C:\\b\nValueError: Unknown CUDA arch (8.8+PTX) or GPU not supported\n")
    assert '$env:TORCH_CUDA_ARCH_LIST = "8.6"' in told
    assert "2.7" in _fix("torch 2.5.1\nValueError: Unknown CUDA arch (12.0) or GPU not supported\n")


def test_a_mac_is_not_sent_to_an_index_of_linux() -> None:
    log = "ERROR: No matching distribution found for torch==2.6.0\n/Library/Frameworks/Python.framework/bin/pip\n"
    assert "torch==2.2.2" in _fix(log)
    assert "rekindle plan" not in _fix(log)


def test_only_a_new_triton_is_pointed_to_another_ptxas() -> None:
    said = "Internal Triton PTX codegen error\nptxas fatal   : Value '{}' is not defined for option 'gpu-name'\n"
    assert "TRITON_PTXAS_PATH" in _fix(said.format("sm_121a"))
    assert "TRITON_PTXAS_PATH" not in _fix(said.format("sm_120"))


def test_a_toolset_is_loaded_by_a_file_that_the_prompt_names() -> None:
    said = "#error:  -- unsupported Microsoft Visual Studio version! Only the versions between 2017 and 2022 are"
    log = f"C:\\CUDA\\v11.8\\include\\crt/host_config.h(153): fatal error C1189: {said}\n"
    fix = diagnose_text(log).causes[0].whole
    assert fix.commands == ('call "%VCINSTALLDIR%Auxiliary\\Build\\vcvars64.bat" -vcvars_ver=14.39',)


def test_a_fermi_is_not_told_that_it_works_without_cudnn() -> None:
    status = "cuDNN error: CUDNN_STATUS_ARCH_MISMATCH\n"
    assert "it works" not in _fix(f"GPU 0: GeForce GTX 460\n{status}")
    assert "it works" in _fix(f"GPU 0: Tesla K80\n{status}")


def test_a_package_is_named_only_where_its_files_were_read() -> None:
    log = "/usr/bin/g++ -c a.cpp\na.cpp:3:10: fatal error: {}: No such file or directory\n"
    assert "sudo apt install libnuma-dev" in _fix(log.format("numa.h"))
    # A metapackage of Debian holds no header itself.
    assert "apt install" not in _fix(log.format("boost/any.hpp"))


def test_an_architecture_is_missing_in_one_direction() -> None:
    fatal = "nvcc fatal   : Unsupported gpu architecture 'compute_{}'\n"
    assert "CUDA 11.8 is the last" in _fix(fatal.format("35"))
    assert "came with CUDA 12.8" in _fix(fatal.format("120"))


def test_the_nvrtc_of_another_program_is_not_torchs() -> None:
    said = "GPU 0: Tesla V100-SXM2-32GB\nnvrtc: error: invalid value for --gpu-architecture (-arch)\n"
    assert "CUDA 12.9 is the last" in _fix(f"tinygrad.device.CompileError\n{said}")
    assert "torch" in _fix(f"torch 2.9.0\n{said}")


def test_a_full_disk_in_a_container_build_is_dockers() -> None:
    full = "OSError: [Errno 28] No space left on device\n"
    assert "docker system df" in _fix(f"=> ERROR [builder 6/13] RUN pip install torch\n{full}")
    assert "docker" not in _fix(f"/usr/bin/python -m pip install torch\n{full}")


def test_the_driver_of_wsl_is_that_of_windows() -> None:
    failed = "Failed to initialize NVML: N/A\n"
    assert "wsl --shutdown" in _fix(f"5.15.153.1-microsoft-standard-WSL2\n$ nvidia-smi\n{failed}")
    assert "wsl" not in _fix(f"/usr/bin/nvidia-smi\n{failed}")


def test_two_driver_versions_in_a_container_want_a_reboot_and_no_toolkit() -> None:
    said = "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown.\n"
    found = diagnose_text(f"docker: Error response from daemon: {said}").causes[0]
    assert found.label == "driver_library_mismatch"
    assert "Reboot" in found.whole.text
