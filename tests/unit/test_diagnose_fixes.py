"""A fix is made from what is known: the resolver's command for the card, a value of the log, or what to find out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rekindle.diagnose.answer import Cause
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.facts import facts_from_options
from rekindle.knowledge.logs.signatures import causes
from rekindle.knowledge.torch.patches import Patch, patches
from rekindle.stack.resolver import resolve
from rekindle.stack.situation import Wish, situation_from_options
from support.command import rekindle_command

MACHINES = Path(__file__).parents[1] / "machines"
CPU_ONLY = "AssertionError: Torch not compiled with CUDA enabled\n"
NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"


def first(log: str, **known: object) -> Cause:
    return diagnose_text(log, known=facts_from_options(**known)).causes[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("log", [CPU_ONLY, "ERROR: No matching distribution found for torch==1.13.1\n"])
@pytest.mark.parametrize(("gpu", "system"), [("RTX 5070", "windows"), ("GTX 1080", "linux"), ("RTX 3090", "windows")])
def test_the_command_for_a_card_is_the_one_that_the_plan_prints(log: str, gpu: str, system: str) -> None:
    planned = resolve(situation_from_options([gpu], system=system), Wish()).recommended.commands
    assert planned
    assert set(planned) <= set(first(log, gpus=(gpu,), system=system).whole.commands)


def test_no_fix_sends_an_rtx_5070_to_an_index_without_its_code() -> None:
    for log in (CPU_ONLY, "RuntimeError: operator torchvision::nms does not exist\n", NO_IMAGE):
        fix = first(log, gpus=("RTX 5070",), system="windows").whole
        assert not any(re.search(r"cu(?:11\d|12[0-7])\b", command) for command in fix.commands)


@pytest.mark.parametrize("log", [CPU_ONLY, "RuntimeError: operator torchvision::nms does not exist\n"])
def test_without_a_card_no_index_is_guessed(log: str) -> None:
    fix = first(log).whole
    assert not any("--index-url" in command for command in fix.commands)
    assert "rekindle install" in fix.commands


def test_a_recorded_machine_gives_the_plan_of_that_machine(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(CPU_ONLY, encoding="utf-8")
    machine = MACHINES / "rtx5070-windows.json"
    planned = rekindle_command("plan", "--machine", str(machine), "--json").json()["recommended"]["commands"]
    given = rekindle_command("diagnose", str(log), "--machine", str(machine), "--json").json()
    assert set(planned) <= set(given["causes"][0]["fix"]["commands"])


def test_the_card_and_torch_that_the_log_names_are_enough() -> None:
    log = f"Ubuntu 22.04\ntorch 2.9.0+cu128\nGPU 0: NVIDIA GeForce GTX 1070\n{NO_IMAGE}"
    found = diagnose_text(log).causes[0]
    assert found.label == "torch_lacks_gpu_arch"
    assert any("cu126" in command for command in found.whole.commands)
    # The same message where torch has the card: then it is an extension.
    frame = '  File "/e/lib/python3.11/site-packages/flash_attn/x.py", line 5, in fwd'
    log = f"torch 2.9.0+cu126\nGPU 0: NVIDIA GeForce RTX 3090\n{frame}\n{NO_IMAGE}"
    found = diagnose_text(log).causes[0]
    assert found.label == "no_kernel_image"
    assert "flash_attn" in found.whole.text
    assert any(command.endswith("flash-attn") for command in found.whole.commands)


def test_no_kernel_image_of_torch_itself_asks_for_the_right_torch_first() -> None:
    fix = first(NO_IMAGE, gpus=("GTX 1080",), system="linux").whole
    assert "torch" in fix.commands[0]
    assert "--index-url" in fix.commands[0]


def test_a_wrapped_message_gives_the_same_fix() -> None:
    card = "NVIDIA GeForce RTX 5070 with CUDA capability sm_120 is not"
    whole = f"{card} compatible with the current PyTorch installation.\n"
    cut = f"{card}\ncompatible with the current PyTorch installation.\n"
    one, two = (first(log, system="windows") for log in (whole, cut))
    assert (one.label, one.whole) == (two.label, two.whole)
    missing = "ImportError: /srv/env/lib/python3.11/site-packages/foo/bar.so: undefined\nsymbol: _ZN3c105ErrorC1Ev\n"
    assert first(missing).whole == first(missing.replace("undefined\n", "undefined ")).whole


def test_cudnn_is_told_by_the_card() -> None:
    engine = "RuntimeError: GET was unable to find an engine to execute this computation\n"
    assert first(engine).label == "cudnn_runtime_failed"
    log = f"device cuda:0 NVIDIA GeForce GTX 1080\ncuDNN 91100\n{engine}"
    found = diagnose_text(log).causes[0]
    assert found.label == "cudnn_lacks_gpu_arch"
    assert "9.10.2" in found.whole.text
    kepler = first("RuntimeError: cuDNN error: CUDNN_STATUS_ARCH_MISMATCH\n", gpus=("Tesla K80",), system="linux")
    assert "8.7.0" in kepler.whole.text


def test_no_package_is_made_up() -> None:
    for module in ("mmcv._ext", "flash_attn_2_cuda", "MultiScaleDeformableAttention", "detectron2"):
        fix = first(f"ModuleNotFoundError: No module named '{module}'\n").whole
        assert not any(re.match(rf"pip .* {module}$", command) for command in fix.commands)
    assert "python -m pip install opencv-python" in first("ModuleNotFoundError: No module named 'cv2'\n").whole.commands


def test_the_setting_that_failed_is_not_repeated() -> None:
    log = (
        "C:\\CUDA\\v12.3\\bin\\nvcc.exe -c k.cu\nyvals_core.h(902): error: static assertion failed with "
        '"error STL1002: Unexpected compiler version, expected CUDA 12.4 or newer."\n'
    )
    fix = first(log, gpus=("RTX 5070",), system="windows").whole
    assert not any("--cuda 12.3" in command for command in fix.commands)
    assert any("torch" in command for command in fix.commands)


def test_what_the_log_names_stands_in_the_command() -> None:
    log = (
        "  Getting requirements to build wheel ... error\nModuleNotFoundError: No module named 'torch'\n"
        "Failed to build flash-attn\n"
    )
    assert "pip install --no-build-isolation flash-attn" in first(log).whole.commands


@pytest.mark.parametrize("dll", ["aoti_custom_ops.dll", "backend_with_compiler.dll", "c10d_cuda_test.dll"])
def test_a_test_library_is_named_as_one(dll: str) -> None:
    log = (
        "OSError: [WinError 126] The specified module could not be found. "
        f'Error loading "C:\\v\\Lib\\site-packages\\torch\\lib\\{dll}" or one of its dependencies.\n'
    )
    fix = first(log).whole
    for name in ("libiomp5md.dll", "mkl_intel_thread.2.dll", "cupti64_*.dll"):
        assert name in first(log).fix.text
    assert first(log).fix.commands == ("rekindle repair WHEEL",)
    assert f"--remove {dll}" in fix.text
    assert '$env:BUILD_TEST = "0"' in fix.commands
    assert not any("VCRedist" in command for command in fix.commands)


@pytest.mark.parametrize("patch", patches(), ids=lambda patch: patch.id)
def test_every_patch_is_reached_by_its_symptom(patch: Patch) -> None:
    found = diagnose_text(patch.symptom)
    assert found.causes
    command = f"rekindle patch . --only {patch.id}"
    assert (command in found.causes[0].whole.commands) == patch.edits, "one that edits nothing is no command to run"
    assert f"`{patch.id}`" in found.causes[0].whole.text


@pytest.mark.parametrize(
    ("log", "label"),
    [
        (
            "pip._vendor: SSLError(SSLCertVerificationError(1, 'self-signed certificate'))",
            "tls",
        ),
        (
            "ERROR: Cannot connect to proxy. ProxyError('407 Proxy Authentication Required')",
            "proxy",
        ),
        (
            '(Caused by SSLError("Can\'t connect to HTTPS URL because the SSL module is not available."))',
            "ssl",
        ),
    ],
)
def test_a_download_fails_for_different_reasons(log: str, label: str) -> None:
    found = first(log + "\nERROR: Could not install\n")
    assert found.label == "network_download_failed"
    assert {"tls": "root certificate", "proxy": "HTTPS_PROXY", "ssl": "no ssl module"}[label] in found.whole.text


@pytest.mark.parametrize(
    "command",
    [
        # 2.7 to 2.13, by setup.py, and 2.14 on, by CMake.
        "-- Checkout nccl release tag: v2.27.5-1\nCloning into 'nccl'...",
        "[1/9] Performing download step (git clone) for 'nccl-populate'\nCloning into 'nccl'...",
    ],
)
def test_a_clone_of_nccl_that_fails_names_the_ways_without_it(command: str) -> None:
    said = "fatal: unable to access 'https://github.com/NVIDIA/nccl/': Could not resolve host: github.com"
    found = first(f"{command}\n{said}\n-- Configuring incomplete, errors occurred!\n")
    assert found.label == "network_download_failed"
    assert (
        "USE_NCCL=0" in found.whole.text and "USE_SYSTEM_NCCL=1" in found.whole.text and "pip" not in found.whole.text
    )


PLACEHOLDERS = re.compile(r"\b(?:PACKAGE|NAME|VERSION|FILE|SCRIPT)\b|\{\w+\}|/folder/")


@pytest.mark.long
@pytest.mark.parametrize("before", ["", "C:\\Users\\u\\x>dir\n", "Ubuntu 22.04\n/usr/bin/ls\n"])
def test_no_fix_prints_a_placeholder_or_a_fragment(before: str) -> None:
    for row in causes():
        for signature in row.signature:
            for cause in diagnose_text(f"{before}{signature.sample or signature.example}\n").causes:
                assert cause.whole.text.strip(), cause.label
                assert cause.whole.text[0].isupper() or cause.whole.text[0] == "`", cause.whole.text
                for text in (cause.whole.text, *cause.whole.commands):
                    assert not PLACEHOLDERS.search(text), (cause.label, text)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "a.cu(9): fatal error C1083: Impossible d'ouvrir le fichier include : 'jpeglib.h': No such file",
            ("`jpeglib.h`",),
        ),
        (
            "a.cu(9): fatal error C1083: Cannot open include file: 'bits/stdc++.h': No such file or directory",
            ("`bits/stdc++.h`", "WSL"),
        ),
        (
            ">>> import my_ext\nImportError: DLL load failed: The specified module could not be found.",
            ("`import torch` above it", "redistributable"),
        ),
        (
            (
                "crt/host_config.h(160): fatal error C1189: #error:  -- unsupported Microsoft Visual Studio "
                "version! Only the versions between 2017 and 2019 (inclusive) are supported!"
            ),
            ("Visual Studio 2019", "14.29"),
        ),
        ("LINK : fatal error LNK1181: cannot open input file 'ID=2.obj'", ("/MANIFEST:EMBED,ID=2",)),
        (
            (
                '  File "/opt/env/lib/python3.8/site-packages/mish_cuda/__init__.py", line 15, in forward\n'
                "RuntimeError: CUDA error: no kernel image is available for execution on the device"
            ),
            ("Rebuild `mish_cuda`", "TORCH_CUDA_ARCH_LIST"),
        ),
        (
            "torch 1.4.0, device: GeForce RTX 3090\nRuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
            ("no code for sm_86",),
        ),
        ("Starting training loop; initial compile can take a while...\nKilled", ("No compiler is involved",)),
        ("FATAL: this function is for sm80, but was built for sm750", ("xformers",)),
        ("nvcc fatal   : Unsupported NVHPC compiler found. nvc++ is the only NVHPC compiler", ("Give gcc",)),
        (
            'e.cu(8): error: no instance of function template "atomicAdd" matches the argument list',
            ("atomicAdd on half with 7.0",),
        ),
        ("the container starts, and after some seconds it exits (with code 132).", ("avx2",)),
        (
            "--require=cuda>=10.0 brand=tesla,driver>=384] requirement error: unsatisfied condition: brand = tesla",
            ("410.48",),
        ),
        ("make[1]: /opt/linaro/bin/aarch64-linux-gnu-gcc: Command not found", ("is not installed",)),
        ("./config.guess: unable to guess system type", ("configure again",)),
        ("h2o4gpu*.whl is not a valid wheel filename.", ("was not built",)),
        ('CMake Error: Object library target "boost" may not link to anything', ("Take a newer one",)),
        ("CMake Error at C:3 (string):\n  string does not recognize sub-command JSON", ("Take a newer one",)),
    ],
)
def test_a_fix_says_what_the_thread_accepted(log: str, words: tuple[str, ...]) -> None:
    cause = diagnose_text(log + "\n").causes[0]
    for word in words:
        assert word in cause.whole.text
    assert "14.xx" not in cause.whole.text and "ouvrir" not in cause.whole.text


def test_a_release_before_the_tables_is_known_to_be_older_than_a_card() -> None:
    from rekindle.model.card import Capability
    from rekindle.stack.coverage import torch_lacks

    assert torch_lacks("1.4.0", None, "linux", Capability(8, 6)) is True
    assert torch_lacks("1.8.0", None, "linux", Capability(8, 6)) is None
    assert torch_lacks("1.4.0", None, "linux", Capability(6, 1)) is None


def _fix(log: str) -> tuple[str, tuple[str, ...]]:
    fix = diagnose_text(log + "\n").causes[0].whole
    return fix.text, fix.commands


def test_an_index_that_has_no_such_wheel_is_explained_from_the_tables() -> None:
    asked = "Python {}\nC:\\x> pip install torch --index-url https://download.pytorch.org/whl/{}\n"
    asked += "ERROR: No matching distribution found for {}"
    text, _ = _fix(asked.format("3.12.8", "cu132", "torch==2.9.1"))
    assert "torch 2.9.1 has no index `cu132`: it has cu126, cu128 and cu130" in text
    text, _ = _fix(asked.format("3.13.1", "cu121", "torch"))
    assert "`cu121` ends with torch 2.5.1" in text and "not for 3.13" in text


def test_companions_of_the_installed_torch_are_named() -> None:
    text, commands = _fix("torch 2.4.0+cu121\n/usr/lib/x.so\nRuntimeError: operator torchvision::nms does not exist")
    assert "Keep torch 2.4.0" in text
    assert commands[0].startswith("pip install torchvision==0.19.0+cu121 torchaudio==2.4.0+cu121 --index-url")
    text, _ = _fix(
        "xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
        "    PyTorch 2.3.0+cu121 with CUDA 1201 (you have 2.1.0+cu118)"
    )
    assert "built for torch 2.3.0, and torch 2.1.0 is installed" in text


@pytest.mark.parametrize(
    ("log", "says", "never"),
    [
        (
            "ImportError: libcudnn.so.5: cannot open shared object file: No such file or directory",
            "which pip does not have",
            "nvidia-cudnn-cu12==5",
        ),
        (
            "a.ptx, line 3; error   : Instruction 'tensormap.replace' not supported on .target 'sm_120'",
            "`sm_120` has no such instruction",
            "needs sm_120",
        ),
        ("/bin/sh: 1: cicc: not found", "a part of the CUDA toolkit itself", "Install `cicc`"),
        (
            "a.cu.obj : error LNK2001: unresolved external symbol cudaGetLastError",
            "those of `cudart`",
            "torch.lib",
        ),
        (
            "ImportError: /lib64/libc.so.6: version `GLIBC_2.33' not found (required by /x/libpyg.so)",
            "cannot be replaced alone",
            "libstdcxx-ng",
        ),
        (
            "ERROR: No matching distribution found for torch==2.0.1+cu117",
            "are for Python 3.8 to 3.11 only; `+cu117` is in PyTorch's own index only",
            "{",
        ),
        (
            "CUDA error (/build/source/third_party/flash-attention/hopper/a.h:167): no kernel image is available",
            "`flash-attention`",
            "`source`",
        ),
    ],
)
def test_a_fix_names_the_thing_itself(log: str, says: str, never: str) -> None:
    fix = first(f"{log}\n").whole
    told_all = " ".join((fix.text, *fix.commands))
    assert says in told_all
    assert never not in told_all


def test_what_vcvarsall_is_missing_is_no_developer_prompt() -> None:
    assert first("error: Unable to find vcvarsall.bat\n").label == "msvc_not_installed"


def test_a_missing_driver_library_is_not_blamed_on_cudnn() -> None:
    log = "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file\nAborted\n"
    assert first(log).label == "libcuda_not_found"


@pytest.mark.parametrize("system", ["windows", "linux", None])
def test_a_line_of_sh_keeps_its_variables_whatever_the_system(system: str | None) -> None:
    """With `--os windows` the quotes around `$PATH` emptied it."""
    from rekindle.diagnose.fix import command_of

    assert command_of("export PATH=/usr/local/cuda/bin:$PATH", system, {}) == 'export PATH="/usr/local/cuda/bin:$PATH"'


_804 = "RuntimeError: cuda runtime error (804) : forward compatibility was attempted on non supported HW"
_K2100M = """cudaGetDeviceCount failed: CUDA driver version is insufficient for CUDA runtime version
GPU processor:\t\tQuadro K2100M
Driver version:\t\t411.63
"""
_SIF = """$ singularity run cellbender.sif cellbender --cuda
AssertionError: Trying to use CUDA, but CUDA is not available.
"""
_NODES = """I train on two GCP nodes with 8 GPUs each and it just hangs
pod:436:784 [1] NCCL INFO Channel 00 : 7[1] -> 8[0] [send] via NET/Socket/0
"""


@pytest.mark.parametrize(
    ("log", "label", "words", "never"),
    [
        (_SIF, "gpu_not_visible", "add `--nv`", "rekindle install"),
        (f"after the Ubuntu update\n{_804}\n", "driver_library_mismatch", "sudo reboot", "image of a CUDA"),
        (f"docker run --gpus all img\n{_804}\n", "driver_too_old", "image of a CUDA", "sudo reboot"),
        (_K2100M, "driver_too_old", "driver 411.63", "PyTorch"),
        (_NODES, "nccl_failed", "NCCL_SOCKET_IFNAME", "P2P_DISABLE"),
    ],
)
def test_the_situation_decides_between_two_fixes_of_one_message(log: str, label: str, words: str, never: str) -> None:
    """Each was told the other one: by the message alone."""
    found = first(log)
    said = f"{found.whole.text} {' '.join(map(str, found.whole.commands))}"
    assert found.label == label
    assert words in said and never not in said


@pytest.mark.parametrize(("cards", "number"), [(("Tesla K80", "RTX 3090"), "1"), (("RTX 3090", "Tesla K80"), "0")])
def test_the_other_of_two_cards_is_the_one_that_is_shown(cards: tuple[str, str], number: str) -> None:
    """It was always 0, which was the old card's, and for PowerShell where no system was named."""
    listed = "".join(f"GPU {place}: NVIDIA {name}\n" for place, name in enumerate(cards))
    fix = first(f"{listed}torch 2.6.0+cu124\n{NO_IMAGE}").whole
    assert fix.commands[0].environment == {"CUDA_VISIBLE_DEVICES": number}
    assert fix.commands[0].system == "linux"
    assert "Only RTX 3090" not in fix.text and "Only NVIDIA GeForce RTX 3090" not in fix.text


def test_a_portable_program_is_named_by_its_folder() -> None:
    """`--env .` is right in one folder only, and the log says which it was."""
    log = """Traceback (most recent call last):
  File "D:\\AI\\ComfyUI_windows_portable\\ComfyUI\\custom_nodes\\X\\nodes.py", line 5, in <module>
    from sageattention import sageattn
ModuleNotFoundError: No module named 'sageattention'
"""
    (command,) = first(log).whole.commands
    assert command.words[-2:] == ("--env", r"D:\AI\ComfyUI_windows_portable\python_embeded")


def test_an_extension_is_not_rebuilt_for_a_card_that_nobody_named() -> None:
    """SageAttention was to be built again for a GTX 1060, which no build of it serves: `audit` there says so."""
    log = f"""Traceback (most recent call last):
  File "D:\\ComfyUI_windows_portable\\python_embeded\\Lib\\site-packages\\sageattention\\core.py", line 132, in sageattn
    return sageattn_qk_int8_pv_fp16_triton(q, k, v)
{NO_IMAGE}"""
    fix = first(log).whole
    assert [each.words for each in fix.commands] == [
        ("rekindle", "audit", r"D:\ComfyUI_windows_portable\python_embeded")
    ]
    assert "`--gpu`" in fix.text


def test_a_build_that_only_pytorchs_index_has_comes_with_the_line() -> None:
    wanted = "torch==1.12.1+cu113"
    log = f"ERROR: Could not find a version that satisfies the requirement {wanted} (from versions: 1.11.0, 2.7.1)\n"
    command = first(f"{log}ERROR: No matching distribution found for {wanted}\n").whole.commands[0]
    assert command.words[-3:] == (wanted, "--index-url", "https://download.pytorch.org/whl/cu113")
    # Where the oldest that is offered is newer, so is the Python: that line would fail again.
    command = first(log.replace("1.11.0, ", "2.0.0, ")).whole.commands[0]
    assert command.words == ("uv", "venv", "--python", "3.10")


@pytest.mark.parametrize(
    ("driver", "system", "enough"), [("580", "linux", True), ("580", "wsl2", True), ("535", "linux", False)]
)
def test_a_driver_that_runs_the_cuda_is_not_called_too_old(driver: str, system: str, enough: bool) -> None:
    """`plan` takes R580 for cu130: what the message met was another driver."""
    known = facts_from_options(gpus=("RTX 3060",), system=system, driver=driver, torch="2.9.1+cu130")
    for log in (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        "cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version at x.cpp",
    ):
        cause = diagnose_text(log, known=known).causes[0]
        assert cause.label == "driver_too_old"
        assert ("is too old for this CUDA" in cause.fix.text) is not enough
        assert (f"Driver {known.driver} runs CUDA 13.0" in cause.fix.text) is enough


def test_a_sentence_is_not_cut_inside_of_its_brackets() -> None:
    log = "Windows 10, GTX 1080 Ti, easyocr\nCUDA not available - defaulting to CPU. Note: much faster with one.\n"
    assert not first(log).fix.text.endswith("(evidence:")
