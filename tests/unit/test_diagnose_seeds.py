"""Every problem that the people whose week this project is about ran into: each is recognised."""

from __future__ import annotations

import pytest

from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.facts import Facts
from rekindle.model.card import Capability

LIB = r"C:\envs\py310\lib\site-packages\torch\lib"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("AttributeError: module 'distutils' has no attribute '_msvccompiler'", "distutils_msvccompiler"),
        ("Compatibility with CMake < 3.5 has been removed from CMake.", "cmake4_policy_removed"),
        (f'OSError: [WinError 126] Error loading "{LIB}\\aoti_custom_ops.dll"', "dll_dependency_missing"),
        (f'OSError: [WinError 126] Error loading "{LIB}\\backend_with_compiler.dll"', "dll_dependency_missing"),
        ("Could not load library cudnn_ops_infer64_8.dll. Error code 126", "cudnn_not_found"),
        ("LINK : fatal error LNK1181: cannot open input file 'nvToolsExt64_1.lib'", "nvtx_missing"),
        ('Target "torch" links to CUDA::nvToolsExt but the target was not found.', "nvtx_missing"),
        ("x.obj : error LNK2019: unresolved external symbol c10d::Work::wait", "link_without_distributed"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120'", "cuda_arch_unsupported_by_nvcc"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_35'", "cuda_arch_unsupported_by_nvcc"),
        (
            'error: static assertion failed with "error STL1002: Unexpected compiler version"',
            "msvc_stl_requires_newer_cuda",
        ),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "no_kernel_image"),
        ("Command '['where', 'cl']' returned non-zero exit status 1.", "cl_not_on_path"),
        ("ninja: fatal: CreateProcess: The parameter is incorrect.", "command_line_too_long"),
        ("C:/Program Files/CUDA/bin/nvcc.exe -c\nCreateProcess failed: The system cannot find it", "path_with_spaces"),
        ("CreateProcess failed: The system cannot find the file specified.", "compiler_tool_missing"),
        ("FileNotFoundError: [WinError 206] The filename or extension is too long", "command_line_too_long"),
        ("UnicodeEncodeError: 'charmap' codec can't encode characters in position 0-3", "unicode_encode"),
        ("A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.2.0\nImportError: x", "numpy_abi"),
        (
            "UserWarning: Failed to initialize NumPy: _ARRAY_API not found\nRuntimeError: Numpy is not available",
            "numpy_abi",
        ),
        ("Unknown CUDA Architecture Name 12.0 in CUDA_SELECT_NVCC_ARCH_FLAGS", "cuda_arch_unsupported_by_nvcc"),
        ("fatal error C1189: #error:  -- unsupported Microsoft Visual Studio version!", "msvc_too_new_for_cuda"),
        ("c:\\x.cu: fatal error C1060: compiler is out of heap space", "compiler_out_of_memory"),
        (
            "fatal error LNK1112: module machine type 'x86' conflicts with target machine type 'x64'",
            "machine_type_conflict",
        ),
        ("error: unable to create file third_party/x/y.h: Filename too long", "path_too_long"),
    ],
)
def test_it_is_recognised(text: str, label: str) -> None:
    found = diagnose_text(text + "\nninja: build stopped: subcommand failed.\n")
    assert [cause.label for cause in found.causes][:1] == [label]


def test_the_machine_tells_look_alikes_apart() -> None:
    ampere = "RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n"
    newer = Facts(gpus=(Capability.parse("12.0"),))
    older = Facts(gpus=(Capability.parse("7.5"),))
    assert diagnose_text(ampere, known=newer).causes[0].label == "no_kernel_image"
    assert diagnose_text(ampere, known=older).causes[0].label == "gpu_too_old_for_kernel"
    both = {cause.label for cause in diagnose_text(ampere).causes}
    assert both == {"no_kernel_image", "gpu_too_old_for_kernel"}
    compiler = "error: Microsoft Visual C++ 14.0 or greater is required.\n"
    assert diagnose_text(compiler).causes[0].label == "msvc_not_installed"
    assert diagnose_text(compiler, known=Facts(developer_prompt=True)).causes[0].label == "distutils_use_sdk"


def test_what_explains_the_others_comes_first() -> None:
    found = diagnose_text(
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    )
    assert [(cause.label, cause.explained_by) for cause in found.causes] == [
        ("torch_lacks_gpu_arch", None),
        ("no_kernel_image", "torch_lacks_gpu_arch"),
    ]


def test_a_wheel_that_was_looked_for_in_vain_is_not_why_the_build_failed() -> None:
    found = diagnose_text(
        "Guessing wheel URL: https://example.org/flash_attn-2.whl\n"
        "  urllib.request.urlretrieve(wheel_url, wheel_filename)\n"
        "urllib.error.HTTPError: HTTP Error 404: Not Found\n"
        "During handling of the above exception, another exception occurred:\n"
        "a.cu(12): error: expected a declaration\nninja: build stopped: subcommand failed.\n"
    )
    assert found.causes[0].label == "source_code_error"


def test_independent_failures_are_listed_each_with_its_own_job() -> None:
    found = diagnose_text(
        "[1/9] Building CUDA object a.cu.o\nFAILED: a.cu.o\nnvcc fatal   : Unsupported gpu architecture 'compute_35'\n"
        "[2/9] Building CXX object b.cpp.o\nFAILED: b.cpp.o\nb.cpp:3:10: fatal error: Python.h: No such file\n"
        "ninja: build stopped: subcommand failed.\n"
    )
    roots = {cause.label: cause.job for cause in found.causes if cause.explained_by is None}
    assert roots["cuda_arch_unsupported_by_nvcc"] == "a.cu.o"
    assert roots["python_dev_files_missing"] == "b.cpp.o"
