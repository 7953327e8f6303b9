"""What a log names is read before any signature: prepared, listed with its line, and held against the tables."""

from __future__ import annotations

import pytest

from rekindle.diagnose.answer import LIKELY, POSSIBLE, VERY_LIKELY, LogOutcome
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.text import unquoted

DLL = r"C:\x\torch\lib\fbgemm.dll"


@pytest.mark.parametrize(
    ("line", "right"),
    [
        (r'   "OSError: Error loading \"C:\\x\\torch\\lib\\fbgemm.dll\"\n",', [f'OSError: Error loading "{DLL}"']),
        (r'    "\u001b[1;31mOSError\u001b[0m: [WinError 126]\n",', ["OSError: [WinError 126]"]),
        (r'  stderr: "nvcc fatal : x\nmake: *** [a.o] Error 1"', ["nvcc fatal : x", "make: *** [a.o] Error 1"]),
        (r"""['  File "a.py", line 1\n', 'OSError: x\n']""", ["", '  File "a.py", line 1', "OSError: x", ""]),
        (r"output=b'a.cu(1): error: x\r\nstopped'", ["output=", "a.cu(1): error: x", "stopped"]),
        ("[31mERROR[0m a &quot;b&quot;", ['ERROR a "b"']),
        (r'"C:\new\table"', [r'"C:\new\table"']),
        (r'error loading "C:\new\nvcc.exe"', [r'error loading "C:\new\nvcc.exe"']),
    ],
)
def test_what_was_quoted_is_made_plain(line: str, right: list[str]) -> None:
    assert list(unquoted(line)) == right


def test_a_library_in_a_notebook_is_named() -> None:
    found = diagnose_text(
        r'"OSError: [WinError 126] x. Error loading \"C:\\e\\torch\\lib\\fbgemm.dll\" or one\n",' + "\n"
    )
    assert found.causes[0].label == "dll_dependency_missing"
    assert "fbgemm.dll" in found.causes[0].fix.text


@pytest.mark.parametrize(
    ("log", "kind", "value", "line"),
    [
        ("a\n3b:00.0 3D controller: NVIDIA Corporation GP104GL [Tesla P4] (rev a1)\n", "card", "Tesla P4 (6.1)", 2),
        ("03:00.0 0302: 10de:1bb3 (rev a1)\n", "card", "sm_61", 1),
        ("[TRT] [E] 1: Unsupported SM: 0x601\n", "card", "sm_61", 1),
        ("03:00.0 0302: 10de:ffff (rev a1)\n", "card", "10de:ffff", 1),
        ("torch 2.8.0+cu128\n", "torch", "2.8.0+cu128", 1),
        ("Command 'cl' returned non-zero exit status 3221225781.\n", "status", "0xC0000135", 1),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue\n", "driver", "470.57.02", 1),
    ],
)
def test_what_a_log_names_is_listed_with_its_line(log: str, kind: str, value: str, line: int) -> None:
    found = diagnose_text(log).entities
    assert [(each.kind, each.value, each.line, each.read) for each in found if each.kind == kind] == [
        (kind, value, line, value != "10de:ffff")
    ]


def test_a_clash_is_a_cause_where_no_message_is_known() -> None:
    log = "GPU 0: NVIDIA GeForce GTX 1080\ntorch 2.9.1+cu128\nsomething odd went wrong and failed\n"
    found = diagnose_text(log)
    assert found.outcome is LogOutcome.CAUSE
    assert found.causes[0].label == "torch_lacks_gpu_arch"
    assert "2.9.1+cu128 has no code for" in found.causes[0].explanation
    assert [pair.verdict for pair in found.judged] == ["clash"]


def test_work_that_went_well_has_no_cause_whatever_clashes() -> None:
    log = "GPU 0: NVIDIA GeForce GTX 1080\ntorch 2.9.1+cu128\nSuccessfully installed numpy-2.0.0\n"
    assert diagnose_text(log).outcome is LogOutcome.NONE


@pytest.mark.parametrize(
    ("log", "sure"),
    [
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device\n", VERY_LIKELY),
        ("RuntimeError: CUDA error: no kernel image is available\nFAILED: b.o\nb.c:1:2: error: x\n", LIKELY),
        ("ImportError: DLL load failed while importing _C: etwas ging schief\n", POSSIBLE),
    ],
)
def test_how_sure_follows_from_what_it_stands_on(log: str, sure: float) -> None:
    assert diagnose_text(log).causes[0].confidence == sure


@pytest.mark.parametrize(
    "log",
    [
        "Tried it on two cards and got this error:\nTraceback (most recent call last):\nRuntimeError: [!] odd state 17",
        "[Issue]: making a video fails\nI cannot do it, please help.\nRuntimeError: [!] odd state 17",
        "[INFO] Training: RuntimeError: [!] odd state 17\nI don't know how to do this, what is the error?",
    ],
)
def test_the_message_is_shown_and_not_what_is_said_of_it(log: str) -> None:
    shown = [each.text for each in diagnose_text(f"{log}\n").unexplained]
    assert [text for text in shown if "odd state 17" in text] == [text for text in shown if "Traceback" not in text]
    assert any("odd state 17" in text for text in shown)


def test_what_people_say_is_shown_where_no_program_says_anything() -> None:
    assert diagnose_text("I get an error and cannot start it\n").unexplained


def test_two_things_that_cannot_go_together_come_before_a_vague_message() -> None:
    found = diagnose_text(
        "torch.cuda.is_available() returns False\nPyTorch version: 1.3.0\nCUDA used to build PyTorch: 10.1.243\n"
        "GPU models and configuration: GPU 0: Tesla T4\nNvidia driver version: 410.104\n"
    )
    assert [(cause.label, cause.explained_by) for cause in found.causes][:2] == [
        ("driver_too_old", None),
        ("gpu_not_visible", "driver_too_old"),
    ]


def test_a_driver_that_runs_torch_is_not_too_old_for_it() -> None:
    log = "PyTorch version: 1.3.0\nCUDA used to build PyTorch: 10.1\nNvidia driver version: 410.104\n"
    assert diagnose_text(f"Training is stuck.\n{log}").causes[0].label == "driver_too_old"
    assert not diagnose_text(f"Training is stuck.\nIs CUDA available: True\n{log}").causes


def test_what_a_warning_announces_is_part_of_it() -> None:
    log = "connections.py:8: RuntimeWarning: Failed to read commit hash:\nNo module named 'vllm._version'\n"
    assert not diagnose_text(f"{log}I can't start the server\n").causes


@pytest.mark.parametrize("card", ["Nvidia GeForce GT 520M", "Quadro 600", "Tesla M2090"])
def test_a_card_that_no_pytorch_has_code_for_is_the_cause(card: str) -> None:
    found = diagnose_text(f"The program does not see the graphics card\n\nGPU: {card}\n")
    assert found.causes[0].label == "torch_lacks_gpu_arch"
    assert "No PyTorch runs on" in found.causes[0].fix.text


def test_a_toolkit_that_is_older_than_the_card_is_the_cause() -> None:
    found = diagnose_text("darknet does not work on my RTX 3080\nwin 10, vs 2017, CUDA10.0 CUDNN7.6.5\n")
    assert found.causes[0].label == "cuda_arch_unsupported_by_nvcc"
    assert "CUDA 11.1 or newer" in found.causes[0].fix.text


def test_the_torch_of_a_jetson_that_uses_its_gpu_is_kept() -> None:
    found = diagnose_text(
        "Couldn't load custom C++ ops. This can happen if your PyTorch and torchvision versions are incompatible\n"
        "Jetson Xavier\nPyTorch version: 1.11.0\nCUDA used to build PyTorch: 11.4\nIs CUDA available: True\n"
        "Python platform: Linux-5.10.65-tegra-aarch64-with-glibc2.29\n"
    )
    assert found.facts["l4t"] == "35"
    assert "rekindle extension build torchvision==0.12.0" in str(found.causes[0].fix.commands[0])
