"""Where nothing failed, nothing is invented: complete logs of real work that went well, made by good_logs.py."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from rekindle.diagnose.answer import LogOutcome
from rekindle.diagnose.diagnosis import diagnose_text

LOGS = sorted((Path(__file__).parents[1] / "data" / "good-logs").glob("*.log.xz"))


def test_there_are_logs_to_look_at() -> None:
    assert len(LOGS) >= 6


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_no_cause_is_invented(path: Path) -> None:
    text = lzma.decompress(path.read_bytes()).decode("utf-8")
    found = diagnose_text(text)
    assert found.outcome is LogOutcome.NONE, [(cause.label, cause.evidence[0].text) for cause in found.causes]


@pytest.mark.parametrize(
    "text",
    [
        # A probe of the linker by DeepSpeed's setup, on either system.
        "test.c\nLINK : fatal error LNK1181: cannot open input file 'aio.lib'\nSuccessfully installed deepspeed\n",
        "/usr/bin/ld: cannot find -laio: No such file or directory\nSuccessfully installed deepspeed-0.15\n",
        # A body of a CMake warning is no more than a warning.
        (
            "CMake Warning at CMakeLists.txt:5 (find_package):\n"
            '  Could not find a package configuration file provided by "MKL" with any of\n  the following names:\n\n'
            "-- Configuring done\n-- Generating done\n-- Build files have been written to: /b\n"
        ),
        # What a compile command holds is nobody's message.
        (
            '[1/9] /usr/bin/c++ -DERROR_MESSAGE="fatal error: x.h: No such file" -Wno-error=unused -c a.cpp\n'
            "[9/9] Linking CXX executable a\n"
        ),
        # pip -v lists the releases that it passes over.
        (
            "Link requires a different Python (3.11.7 not in: '>=3.12'): contourpy-1.4.0.tar.gz\n"
            "Collecting contourpy==1.3.1\nSuccessfully built contourpy\n"
        ),
        # pip retried, and it worked.
        (
            "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'ReadTimeoutError'\n"
            "Successfully installed torch-2.7.1\n"
        ),
        # PowerShell paints what a program writes on stderr as an error of its own.
        (
            "nvcc.exe : k.cu\n    + CategoryInfo          : NotSpecified: (k.cu:String) [], RemoteException\n"
            "    + FullyQualifiedErrorId : NativeCommandError\nSuccessfully built x\n"
        ),
        # gcc shows the line that a deprecation warning is about.
        (
            "a.cpp:9:3: warning: 'at::DeprecatedTypeProperties& at::Tensor::type() const' is deprecated\n"
            "  109 |   DeprecatedTypeProperties & type() const {\n      |                              ^~~~\n"
            "copying build/lib/a.so -> .\n"
        ),
        "git submodule update --init --recursive\nSubmodule path 'third_party/fmt': done\nSuccessfully built x\n",
        "CUDA not available, using the CPU\ntriton is not available on Windows\nSuccessfully installed x-1\n",
        "CUDA_CUDA_LIBRARY:FILEPATH=/usr/lib/libcuda.so\nBuild files have been written to: /b\n",
    ],
)
def test_harmless_lines_are_harmless(text: str) -> None:
    found = diagnose_text(text)
    assert found.causes == ()
    assert found.outcome is LogOutcome.NONE


@pytest.mark.parametrize(
    "text",
    [
        "I went from a GTX 1080 to an RTX 5070, put a new torch in, and ComfyUI works great now.",
        "On my MacBook jax.devices() returns [CpuDevice(id=0)]: is there a Metal version?",
        "In my CUDA kernel the shared memory is used for tiling on an RTX 3090. It is slower than I thought, why?",
        "My old card, a GTX 1070, does 3 it/s, the RTX 5080 18 it/s. No errors, for information only.",
        "Installed nvidia-driver-550 for an RTX 3060, everything works. Which torch do I install?",
        "The RAM is full after I read the table with pandas: how do I read it in pieces?",
        "My container doesn't see the config file that I mounted: docker run -v ./cfg:/cfg image",
        "Is a Tesla P40 too old to learn with in 2026? I want to use pytorch.",
    ],
)
def test_a_question_is_no_failure(text: str) -> None:
    assert diagnose_text(text).causes == ()


@pytest.mark.parametrize(
    "text",
    [
        "Which card should I buy, an RTX 3060 or a 4060? I use torch 2.4.",
        "Release notes: built with CUDA 13.0, supports RTX 50, drops Pascal. Python 3.9 is no longer supported.",
        "The docs ask for CUDA 11.8. I have CUDA 12.8 installed. Should I downgrade before I begin?",
        "My GTX 1080 Ti with torch 2.4.1+cu121 gives 3 it/s. Is that normal?",
        "The build of our frontend fails: npm ERR! code ELIFECYCLE. The host has an RTX 3090, CUDA 11.7, gcc 12.",
        "Does anybody have benchmarks of 4x P40 with vllm and llama.cpp?",
        "I get an error in the evaluation: KeyError: 'labels'. gcc 9.4, CUDA 11.8, torch 1.13.1+cu117, python 3.8",
        "Training does not converge with batch size 1024. pytorch 1.12, V100, cuda 11.3.",
        "I fixed it: my torch was the cpu version. Reinstalled with cu121 and it works now on the RTX 3060.",
        "Update: solved by installing driver 550, torch 2.4 works now. Thanks!",
        "I get an error when I install it. The error is so long that I cannot add it. GTX 1060, pip install gsplat",
        "[45604:0717/094847.345:ERROR:gpu_process_host.cc(991)] GPU process exited unexpectedly: exit_code=-1073741515",
    ],
)
def test_versions_and_questions_alone_are_no_cause(text: str) -> None:
    found = diagnose_text(f"{text}\n")
    assert not found.causes, [cause.label for cause in found.causes]
