"""What a card can never run, and which driver it can still have: the fix follows from the card that is known."""

from __future__ import annotations

import pytest

from rekindle.core.findings import Fix
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.facts import facts_from_options

FLASH = r"""  error: subprocess-exited-with-error
      File "C:\Temp\pip-install-5w0qlb\flash-attn_0a3c55e0d7f94b1c8e2f6a7b9c0d1e2f\setup.py", line 19, in <module>
        import torch
  ModuleNotFoundError: No module named 'torch'
"""
NUNCHAKU = r"""  File "D:\c\Lib\site-packages\nunchaku\models\__init__.py", line 1, in <module>
    from .._C import QuantizedFluxModel
ImportError: DLL load failed while importing _C: The specified procedure could not be found.
"""
SAGE = r"""  File "D:\c\Lib\site-packages\sageattention\core.py", line 139, in sageattn
ValueError: Unsupported CUDA architecture: sm61
"""
DRIVER = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."
NVCC = r"""C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v13.0\bin\nvcc.exe
nvcc fatal   : Unsupported gpu architecture 'compute_61'
"""


def fix(log: str, gpu: str, **more: str) -> Fix:
    return diagnose_text(log, known=facts_from_options(gpus=[gpu], system="windows", **more)).causes[0].whole


@pytest.mark.parametrize(("log", "package"), [(FLASH, "flash-attn"), (NUNCHAKU, "nunchaku"), (SAGE, "sageattention")])
def test_a_package_without_code_for_the_card_is_left_out(log: str, package: str) -> None:
    old = fix(log, "GTX 1080")
    assert old.text.startswith(f"Leave {package} out:") and "GeForce GTX 1080" in old.text
    assert [each.rpartition("pip ")[2] for each in old.commands] == [f"uninstall -y {package}"]
    assert "Leave" not in fix(log, "RTX 3060").text


def test_sage_attention_names_an_architecture_that_it_lacks() -> None:
    found = diagnose_text(SAGE).causes[0]
    assert found.label == "gpu_too_old_for_kernel" and "`sm61`" in found.whole.text


def test_triton_is_not_installed_for_a_card_that_it_never_runs_on() -> None:
    log = "ModuleNotFoundError: No module named 'triton'"
    assert fix(log, "GTX 1080").commands == ('$env:TORCHDYNAMO_DISABLE = "1"',)
    assert "triton-windows" in fix(log, "RTX 3060").commands[0]


def test_the_cuda_of_a_driver_decides_which_torch_it_can_run() -> None:
    """`found version 11040` is CUDA 11.4: a wheel of CUDA 12 would fail in the same way."""
    said = fix(DRIVER, "GTX 1080")
    assert "CUDA 11.4 at most (branch R470)" in said.text and "R580 is the newest branch" in said.text
    assert said.commands[0].startswith("pip install torch==2.7.1+cu118")


def test_no_update_is_advised_within_the_last_branch_of_the_card() -> None:
    said = fix(DRIVER, "Tesla K40c", driver="472.50").text
    assert said.startswith("The driver 472.50 is of the last branch that has the card (R470): no newer driver helps")


def test_a_dropped_architecture_that_is_the_own_card_wants_an_older_toolkit() -> None:
    said = fix(NVCC, "GTX 1080")
    assert said.text.startswith("`sm_61` is your own card, and CUDA 12.9 is the last that compiles for it")
    assert not any("TORCH_CUDA_ARCH_LIST" in each for each in said.commands)


def test_windows_error_127_is_no_exit_status() -> None:
    log = r'OSError: [WinError 127] The specified procedure could not be found. Error loading "C:\x\torch\lib\c10.dll"'
    assert "compiler_tool_missing" not in [cause.label for cause in diagnose_text(log).causes]


def test_a_torch_of_the_toolkits_cuda_is_not_offered_where_it_has_dropped_the_card() -> None:
    log = (
        "The detected CUDA version (13.0) mismatches the version that was used to compile PyTorch (12.6). "
        "Please make sure to use the same CUDA versions."
    )
    assert "CUDA 13.0 does not compile for sm_61" in fix(log, "GTX 1080").text
    assert "Or keep the toolkit 13.0" in fix(log, "RTX 3060").text
