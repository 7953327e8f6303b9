"""What is said where no cause is known: success needs a sign of its own, and the exit code tells the three apart."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rekindle.diagnose.answer import LogOutcome
from rekindle.diagnose.diagnosis import diagnose_text
from support.command import rekindle_command

# Each was once answered with "Nothing here failed".
FAILED = [
    "Illegal instruction (core dumped)",
    "Program received signal SIGILL, Illegal instruction.\n0x00007fffe9 in f () from /x/torch/lib/libtorch_cpu.so",
    "The container ended with exit code 137",
    "ninja: build stopped: subcommand failed.",
    "ptxas /tmp/a.ptx, line 603; error   : Feature '.release' requires .target sm_70 or higher",
    "Check failed: status == CUDNN_STATUS_SUCCESS (6 vs. 0)  CUDNN_STATUS_ARCH_MISMATCH",
    "'nvcc' is not recognized as an internal or external command,\noperable program or batch file.",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    "NVRM: The 550.54.14 NVIDIA driver will ignore this GPU.  Continuing probe...",
    "E: Unable to locate package nvidia-driver-999",
    'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    "make: *** [Makefile:12: all] Killed",
    "make: *** Killed",
    "Could not locate zlibwapi.dll. Please make sure it is in your library path!",
    "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0.0 as it may crash.",
    "LINK : fatal error LNK1181: cannot open input file 'foo.lib'",
    'Exception in thread "main" java.lang.NullPointerException\n\tat com.x.Main.main(Main.java:5)',
    "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds: the len is 3",
    "npm ERR! code ELIFECYCLE\nnpm ERR! errno 1",
    ">>> torch.__version__\n'2.1.0+cpu'\n>>> torch.cuda.is_available()\nFalse",
    "Training gets stuck at the first step.\n| NVIDIA-SMI 535.10    Driver Version: 535.10    CUDA Version: 12.2 |",
    "No GPU or other accelerator detected. Operations will be slow.\nOk\nDone.",
    "The program does not use my GPU.\n100%|####| 3/3\nmodel saved to out/last.pt",
    "",
    "hello\n",
]


@pytest.mark.parametrize("log", FAILED)
def test_nothing_failed_is_said_only_of_a_success(log: str) -> None:
    found = diagnose_text(log + "\n")
    assert found.outcome is not LogOutcome.NONE
    assert found.causes or found.unexplained or not log


@pytest.mark.parametrize(
    "log",
    [
        "Compiling\nSuccessfully installed torch-2.7.1",
        "[1/2] Building a.o\n[2/2] Linking CXX shared library a.so",
        "epoch 1/2 loss 0.812\nepoch 2/2 loss 0.540\nsaved runs/last.pt",
        ">>> torch.cuda.is_available()\nTrue",
        "============ test session starts ============\na.py .\n============ 1 passed in 0.10s ============",
        "   Compiling x v0.1.0\n    Finished `release` profile [optimized] target(s) in 2.1s",
        "added 120 packages, and audited 121 packages in 3s",
        "Process finished with exit code 0",
        "Resolved 12 packages in 2ms\nInstalled 12 packages in 40ms",
        "[INFO] BUILD SUCCESS",
    ],
)
def test_a_sign_of_success_is_believed(log: str) -> None:
    assert diagnose_text(log + "\n").outcome is LogOutcome.NONE


def test_the_lines_that_look_most_like_a_failure_are_shown() -> None:
    found = diagnose_text("reading\nthe frobnicator could not be calibrated\nwriting\nleaving\n")
    assert found.outcome is LogOutcome.UNKNOWN
    assert found.summary == "No failure that I recognise"
    assert [item.line for item in found.unexplained] == [2]


QUOTED = [
    (
        "============ test session starts ============\na.py::test_oom PASSED\nRuntimeError: CUDA out of memory. "
        "Tried to allocate 2 GiB\n============ 3 passed, 1 warning in 1.20s ============"
    ),
    (
        'src/a.py:12:    raise RuntimeError("CUDA error: no kernel image is available for execution on the device")\n'
        "Successfully built x"
    ),
    "a1b2c3d Fix the crash with `no kernel image is available for execution`\nSuccessfully built x",
    "Ran 12 tests in 0.3s\nOSError: [WinError 126] The specified module could not be found\n\nOK",
    (
        "c++: fatal error: Killed signal terminated program cc1plus\nninja: build stopped: subcommand failed.\n"
        "$ MAX_JOBS=2 pip wheel . --no-build-isolation\nSuccessfully built ops"
    ),
]


@pytest.mark.parametrize("log", QUOTED)
def test_a_quoted_or_overcome_failure_is_none(log: str) -> None:
    found = diagnose_text(log + "\n")
    assert (found.outcome, [cause.label for cause in found.causes]) == (LogOutcome.NONE, [])


@pytest.mark.parametrize(
    ("log", "code"),
    [
        ("Successfully installed torch-2.7.1\n", 0),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", 8),
        ("frobnicator: the gizmo is upside down\n", 9),
    ],
)
def test_the_exit_code_tells_success_cause_and_unknown_apart(tmp_path: Path, log: str, code: int) -> None:
    path = tmp_path / "a.log"
    path.write_text(log, encoding="utf-8")
    assert rekindle_command("diagnose", str(path)).code == code
    assert rekindle_command("diagnose", str(path), "--json").code == code
    assert rekindle_command("diagnose", str(tmp_path)).code == code


def test_a_packed_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "build.log.gz"
    path.write_bytes(gzip.compress(b"nvcc fatal   : Unsupported gpu architecture 'compute_35'\n"))
    seen = rekindle_command("diagnose", str(path), "--json")
    assert seen.json()["causes"][0]["label"] == "cuda_arch_unsupported_by_nvcc"
    assert len(rekindle_command("diagnose", str(tmp_path), "--json").json()["logs"]) == 1
    path.write_bytes(path.read_bytes()[:-12])
    assert rekindle_command("diagnose", str(path)).code == 4


def test_markdown_keeps_what_a_log_says_inside_its_fence(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("```\nnvcc fatal   : Unsupported gpu architecture 'compute_35' ````\n", encoding="utf-8")
    seen = rekindle_command("diagnose", str(path), "--markdown")
    assert seen.out.startswith("### ")
    assert "`cuda_arch_unsupported_by_nvcc`" in seen.out
    assert "`````text" in seen.out
    assert rekindle_command("diagnose", str(path), "--markdown", "--json").code == 2


def test_what_cmake_calls_an_error_is_shown_above_what_it_asked() -> None:
    probes = [f"-- Could NOT find Part{number} (missing: PART{number}_LIBRARY)" for number in range(12)]
    error = ["CMake Error at CMakeLists.txt:12 (message):", "  The frobnicator cannot be on", ""]
    found = diagnose_text("\n".join([*probes, *error, "-- Configuring incomplete, errors occurred!"]) + "\n")
    assert found.outcome is LogOutcome.UNKNOWN
    assert [line.line for line in found.unexplained] == [13, 14]


def test_a_second_try_counts_however_long_other_work_goes_on() -> None:
    failed = ["c++: fatal error: Killed signal terminated program cc1plus", "ninja: build stopped: subcommand failed."]
    again = [
        "$ MAX_JOBS=2 pip wheel . -w dist",
        "Building wheels for collected packages: ops",
        "Successfully built ops",
    ]
    other = [f"building part {number}" for number in range(900)] + ["Successfully built another"]
    assert diagnose_text("\n".join([*failed, *again, *other]) + "\n").outcome is LogOutcome.NONE


def test_a_kernel_that_ptxas_has_made_is_work_that_went_well() -> None:
    log = (
        'k.cu(2): warning #177-D: variable "failed" was declared but never referenced\n'
        "ptxas info    : Compiling entry function '_Z3addPfi' for 'sm_75'\n"
        "ptxas info    : Used 8 registers, used 0 barriers, 364 bytes cmem[0]\n"
    )
    assert diagnose_text(log).outcome is LogOutcome.NONE


def test_what_cmake_warns_of_stays_a_warning_where_another_run_writes_into_it() -> None:
    log = (
        "CMake Warning at cmake/Dependencies.cmake:192 (find_package):\n"
        '  By not providing "FindMKL.cmake" in CMAKE_MODULE_PATH this project has\n'
        "-- Performing Test C_HAS_AVX_1\n"
        '  asked CMake to find a package configuration file provided by "MKL", but\n'
        "-- Performing Test C_HAS_AVX_1 - Failed\n"
        '  CMake did not find one.\n\n  Could not find a package configuration file provided by "MKL" with any of\n'
        "-- Performing Test C_HAS_AVX_2\n"
        "  the following names:\n"
        "-- Build files have been written to: /b\n"
    )
    found = diagnose_text(log)
    assert ([cause.label for cause in found.causes], found.outcome) == ([], LogOutcome.NONE)
    # The same words in an error are one.
    found = diagnose_text(
        log.replace("CMake Warning", "CMake Error").replace("-- Build files", "-- Configuring incomplete")
    )
    assert [cause.label for cause in found.causes] == ["cmake_package_missing"]


def test_a_second_try_that_worked_is_enough_whatever_cmake_asks_python_afterwards() -> None:
    log = (
        "[201/318] Building CUDA object CMakeFiles/ops.dir/k7.cu.o\n"
        "c++: fatal error: Killed signal terminated program cc1plus\nninja: build stopped: subcommand failed.\n"
        "$ MAX_JOBS=2 pip wheel . --no-build-isolation -w dist\nProcessing /srv/ops\nSuccessfully built ops\n"
        "-- The CXX compiler identification is GNU 13.3.0\n"
        'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n'
        "ModuleNotFoundError: No module named 'numpy'\n"
        "-- Could NOT find Python (missing: NumPy)\n-- Build files have been written to: /b\n"
    )
    found = diagnose_text(log)
    assert ([cause.label for cause in found.causes], found.outcome) == ([], LogOutcome.NONE)


def test_a_traceback_without_its_error_is_said_to_be_cut() -> None:
    log = """click update, then it shows this error
Traceback (most recent call last):
  File "main.py", line 91, in <module>
    import execution
  File "model_management.py", line 112, in get_torch_device
    return torch.device(torch.cuda.current_device())
"""
    found = diagnose_text(log)
    assert "ends inside a traceback" in found.summary
    assert [line.line for line in found.unexplained] == [5, 6]
    assert "ends inside" not in diagnose_text(f"{log}ValueError: odd\n").summary


def test_a_card_in_a_sentence_is_known() -> None:
    found = diagnose_text("It is slow. I am also running on a NVIDIA GeForce RTX 2080. Any guidance, it fails?\n")
    assert [(each.kind, each.read) for each in found.entities] == [("card", True)]
    other = diagnose_text("It fails here. I ran it on an RTX 3090 and it works there\n")
    assert not any(each.read for each in other.entities)


@pytest.mark.parametrize("said", ["As soon as I trained, the computer crashed", "NVIDIA GPU DETECTION PROBLEM ON WSL"])
def test_what_a_person_complains_of_did_not_go_well(said: str) -> None:
    assert (
        diagnose_text(f"{said}\nI successfully compiled it.\nSuccessfully installed x-1\n").outcome
        is LogOutcome.UNKNOWN
    )


def test_a_title_that_names_a_failure_is_no_success() -> None:
    found = diagnose_text("# Out of memory\nRunning on local URL:  http://127.0.0.1:7860\nmax_train_steps = 25\n")
    assert found.outcome is not LogOutcome.NONE


def test_a_title_is_no_message_of_cmake() -> None:
    assert not diagnose_text("# CUDA not found in the runners\nsince the upgrade of the machines\n").causes


@pytest.mark.parametrize(
    "text",
    [
        "My K40 was not used\nI don't know why.\nWithout that line I was able to train correctly.",
        "Not an issue, but a question: does it run on a laptop?\nThanks.",
        "Many people have trouble with subprocess-exited-with-error.\nI share my solution here:\npip install torch",
    ],
)
def test_a_person_who_says_that_it_works_is_believed(text: str) -> None:
    found = diagnose_text(text + "\n")
    assert (found.outcome, found.summary) == (LogOutcome.NONE, "Nothing here failed, the text itself says")


def test_a_complaint_after_it_is_believed_too() -> None:
    found = diagnose_text("That solved the problem.\nAfter a reboot it does not work again.\n")
    assert found.outcome is LogOutcome.UNKNOWN


def test_what_looks_like_no_failure_is_not_called_one(tmp_path: Path) -> None:
    log = tmp_path / "a.txt"
    log.write_text(
        "Results of my card\nScene 1: 111 fps\nScene 2: 112 fps\nThanks for the program, I like it.\n", "utf-8"
    )
    found = diagnose_text(log.read_bytes())
    assert found.summary == "Nothing here looks like a failure"
    assert [each.line for each in found.unexplained] == [1, 2, 3]
    shown = " ".join(rekindle_command("diagnose", str(log)).out.split())
    assert "look most like" not in shown
    assert "It ends with these lines." in shown


def test_who_says_that_it_keeps_shutting_down_is_believed() -> None:
    log = "the program keeps just shutting down mid startup...\nUpdate succeeded.\nRunning on local URL:  http://127.0.0.1:7865\n"
    assert diagnose_text(log).outcome is LogOutcome.UNKNOWN
