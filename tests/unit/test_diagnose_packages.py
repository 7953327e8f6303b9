"""Packages, wheels and libraries: a fix names the package and its build for the torch of the log."""

from __future__ import annotations

import pytest

from rekindle.core.version import Version
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.knowledge.logs.extension_homes import for_glibc, home, wheel_for, wheels

ABI = "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
LINUX = "/e/lib/python3.10/site-packages"
SO = "cpython-310-x86_64-linux-gnu.so"
WINDOWS = r"C:\e\Lib\site-packages"


def told(log: str) -> str:
    found = diagnose_text(f"{log}\n").causes[0].whole
    return "\n".join((found.text, *found.commands))


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("flash_attn_2_cuda", "flash-attn"),
        ("selective_scan_cuda", "mamba-ssm"),
        ("torch_sparse", "torch-sparse"),
        ("exllama_kernels", "auto-gptq"),
        ("mmcv._ext", "mmcv"),
    ],
)
def test_a_compiled_module_belongs_to_a_package(module: str, package: str) -> None:
    row = home(module)
    assert row is not None
    assert row.package == package


def test_releases_are_in_order_and_serve_what_they_name() -> None:
    for package in ("xformers", "flash-attn", "torchcodec"):
        rows = wheels(package)
        assert rows
        assert [Version(row.torch[-1]) for row in rows] == sorted(Version(row.torch[-1]) for row in rows)
    fitting = wheel_for("xformers", "2.3.1")
    assert fitting is not None
    assert fitting.version == "0.0.27"
    assert wheel_for("xformers", "2.12.0") is not None
    assert wheel_for("flash-attn", "2.12.0") is None
    assert for_glibc("flash-attn", "2.31", "2.7.1") is None
    old = for_glibc("flash-attn", "2.31", None)
    assert old is not None
    assert old.version == "2.7.4.post1"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            f"ImportError: {LINUX}/flash_attn_2_cuda.{SO}: {ABI}",
            ("`flash-attn`", "2.7.4.post1"),
        ),
        (
            f"torch 2.4.0+cu121\nOSError: {LINUX}/torch_sparse/_version_cpu.so: {ABI}",
            ("-f https://data.pyg.org/whl/torch-2.4.0+cu121.html", "torch 2.4.0+cu121, which is installed"),
        ),
        (
            f"torch                     1.8.0+cu101\nImportError: {LINUX}/detectron2/_C.{SO}: {ABI}",
            ("detectron2/wheels/cu101/torch1.8/index.html",),
        ),
        (
            (
                f'  File "{WINDOWS}\\sageattention\\quant.py", line 20, in <module>\n'
                "ImportError: DLL load failed while importing _fused: The specified module could not be found."
            ),
            ("`sageattention`", "woct0rdho"),
        ),
        (
            (
                f'  File "{WINDOWS}\\sageattention\\quant.py", line 20, in <module>\n'
                "ImportError: DLL load failed while importing x: A DLL initialization routine failed."
            ),
            ("`sageattention` was built for another torch",),
        ),
        (
            (
                "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found "
                f"(required by {LINUX}/flash_attn_2_cuda.{SO})"
            ),
            ("flash-attn==2.7.4.post1", "Ubuntu 22.04"),
        ),
        (
            "    PyTorch 2.2.0+cu121 with CUDA 1201 (you have 2.1.2+cu121)\nxFormers can't load C++/CUDA extensions.",
            ("xformers==0.0.23.post1", "pip uninstall -y xformers", "torch==2.2.0+cu121 torchvision==0.17.0+cu121"),
        ),
        (
            "xFormers was built for:\n    PyTorch 2.8.0+cu128 with CUDA 1208 (you have 2.8.0+xpu)",
            ("for NVIDIA's CUDA", "pip uninstall -y xformers"),
        ),
        (
            "C:\\p\\a.py\nModuleNotFoundError: No module named 'triton'",
            ("triton-windows",),
        ),
        (
            (
                "C:\\p\\a.py\nERROR: Could not find a version that satisfies the requirement triton (from none)\n"
                "ERROR: No matching distribution found for triton"
            ),
            ("triton-windows",),
        ),
        (f"  File \"{WINDOWS}\\vllm\\platforms\\cuda.py\"\nModuleNotFoundError: No module named 'vllm._C'", ("WSL 2",)),
        (
            "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
            ("sudo apt install libgl1",),
        ),
        ("OSError: libtorch_hip.so: cannot open shared object file: No such file or directory", ("ROCm",)),
        (
            (
                "RuntimeError: Could not load libtorchcodec. Likely causes:\n"
                "libavutil.so.59: cannot open shared object file: No such file or directory"
            ),
            ("FFmpeg", "conda install -c conda-forge"),
        ),
        (
            "OMP: Error #15: Initializing libiomp5md.dll, but found it already initialized.",
            ("conda install nomkl",),
        ),
        (
            (
                "  fatal: unable to connect to github.com:\n"
                "  x git clone --quiet git://github.com/a/b.git /tmp/x did not run successfully."
            ),
            ("insteadOf git://github.com/",),
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
            ("pip cache purge", "install the file"),
        ),
        ("  RuntimeError\n\n  Unable to find installation candidates for torch (2.5.1+cu124)", ("poetry env use",)),
        (
            (
                "nvidia-nccl-cu12==2.29.3\nnvidia-nccl-cu13==2.29.7\n"
                "ImportError: /x/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommResume"
            ),
            ("pip uninstall -y nvidia-nccl-cu12",),
        ),
        (
            f"{LINUX}/natten/context.py\nImportError: Failed to import libnatten. Reinstall.",
            ("`natten`", "https://whl.natten.org"),
        ),
    ],
)
def test_a_fix_of_packages_says_what_the_field_accepts(log: str, words: tuple[str, ...]) -> None:
    said = told(log)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("log", "says", "never"),
    [
        (
            "RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xf",
            "--upgrade numpy",
            "numpy<2",
        ),
        (
            "ValueError: numpy.ndarray size changed. Expected 88 from C header, got 80 from PyObject",
            "--upgrade numpy",
            "numpy<2",
        ),
        (
            "ValueError: numpy.dtype size changed. Expected 96 from C header, got 88 from PyObject",
            "numpy<2",
            "--upgrade",
        ),
        (
            "AttributeError: module 'pkgutil' has no attribute 'ImpImporter'",
            "--upgrade pip setuptools",
            "setuptools<81",
        ),
        ("error in a setup command: use_2to3 is invalid.", "setuptools<58", "setuptools<81"),
        ("Intel MKL FATAL ERROR: Cannot load mkl_intel_thread.1.dll.", "conda activate", "mkl<2024.1"),
        ("ImportError: libpython3.8.so.1.0: cannot open shared object file", "$CONDA_PREFIX/lib", "find /"),
        ("ModuleNotFoundError: No module named 'torch'", "rekindle install", "pip install torch"),
        ("fatal: early EOF\nfatal: fetch-pack: invalid index-pack output", "--depth 1", "404"),
        (
            "ERROR: torch-2.4.0-cp310-cp310-linux_x86_64.whl is not a supported wheel on this platform.",
            "CPython 3.10",
            "{",
        ),
        (
            "ERROR: Package 'gsplat' requires a different Python: 3.7.16 not in '>=3.8'",
            "`gsplat` wants Python >=3.8, and this is 3.7.16",
            "rekindle plan",
        ),
        (
            "PackagesNotFoundError: The following packages are not available:\n\n  - pytorch-cuda=12.8",
            "ended with torch 2.5.1",
            "{",
        ),
        (
            "torchvision 0.16.0+cu121 requires torch==2.1.0, but you have torch 2.2.0 which is incompatible.",
            "torchvision 0.17.0",
            "{",
        ),
    ],
)
def test_the_remedy_goes_in_the_right_direction(log: str, says: str, never: str) -> None:
    said = told(log)
    assert says in said
    assert never not in said


def test_a_project_outside_of_site_packages_is_named_by_its_import() -> None:
    log = (
        '  File "c:\\src\\detect\\layers\\roi_align.py", line 8, in <module>\n'
        "    from detect import _C\n"
        "ImportError: DLL load failed: The specified procedure could not be found."
    )
    assert "`detect` was built for another torch" in told(log)


def test_both_sides_of_a_mixed_environment_are_named() -> None:
    log = (
        '  File "/home/j/.conda/envs/d/lib/python3.7/site-packages/torchvision/ops/boxes.py", line 36, in nms\n'
        '  File "/home/j/.local/lib/python3.7/site-packages/torch/_ops.py", line 61, in __getattr__\n'
        "RuntimeError: No such operator torchvision::nms"
    )
    assert "`torch` comes from the user's own folder" in told(log)
    assert "`torchvision` from the environment" in told(log)


def test_the_cpu_build_is_replaced_by_the_line_that_the_log_names() -> None:
    log = "xFormers was built for:\n    PyTorch 2.3.1+cu121 with CUDA 1201 (you have 2.3.1+cpu)"
    assert "torch==2.3.1+cu121 torchvision==0.18.1+cu121" in told(log)
    log = "torch 2.6.0+cpu\nAssertionError: Torch not compiled with CUDA enabled"
    assert "the CUDA builds of torch 2.6.0 are" in told(log)


def test_a_name_of_torch_is_dated() -> None:
    said = told("AttributeError: module 'torch' has no attribute 'float8_e8m0fnu'")
    assert "came with torch 2.7" in said
    assert "came with torch 2.3" in told("AttributeError: module 'torch' has no attribute 'xpu'")


def test_only_one_system_is_told_of_a_missing_driver() -> None:
    assert told("└─ __cuda, which is missing on the system.").count("conda sees no NVIDIA driver") == 1


def test_torch_2_6_for_cuda_12_6_needs_the_newer_c_library() -> None:
    log = "hint: You're on Linux, but `torch` (v2.6.0) only has wheels for the following platforms: `win_amd64`"
    assert "2.6 for CUDA 12.6" in told(log)


def test_a_check_of_versions_names_what_it_wants() -> None:
    log = "ImportError: tokenizers>=0.14,<0.15 is required for a normal functioning of this module"
    found = (
        "huggingface-hub>=0.24.0,<1.0 is required for a normal functioning of this module, but found huggingface-hub"
    )
    assert diagnose_text(f"{log}\n").causes[0].label == "dependency_conflict"
    assert 'pip install "tokenizers>=0.14,<0.15"' in told(log)
    assert "and huggingface-hub 1.2.3 is installed" in told(f"ImportError: {found}==1.2.3.")


def test_the_release_that_is_asked_for_belongs_to_a_torch() -> None:
    log = "ERROR: No matching distribution found for xformers==0.0.16"
    assert "xformers 0.0.16 is for torch 1.13.1" in told(log)
    assert "take xformers 0.0.29.post3" in told(f"torch 2.6.0+cu124\n{log}")


def test_a_release_that_is_asked_for_is_not_called_the_last_of_its_index() -> None:
    log = "pip install torch==2.1.2 --extra-index-url https://download.pytorch.org/whl/cu121\n"
    said = told(
        f"{log}ERROR: Could not find a version that satisfies the requirement torch==2.1.2 (from versions: 2.6.0)"
    )
    assert "ends with torch 2.1.2" not in said
    assert "The torch 2.1.2 of the index `cu121` has wheels for Python 3.8 to 3.11" in said


@pytest.mark.parametrize(("asked", "before"), [("128", "126"), ("126", "125"), ("118", "117")])
def test_the_cuda_before_another_is_one_that_exists(asked: str, before: str) -> None:
    path = f"{LINUX}/bitsandbytes/libbitsandbytes_cuda{asked}.so"
    said = told(f"Could not find the bitsandbytes CUDA binary at PosixPath('{path}')")
    assert f"BNB_CUDA_VERSION={before}" in said


@pytest.mark.parametrize("module", ["tinycudann_bindings", "amp_C", "some_bindings"])
def test_no_name_of_a_package_is_made_up(module: str) -> None:
    said = told(f"ModuleNotFoundError: No module named '{module}'")
    assert f"pip install {module.replace('_', '-')}" not in said


def test_apex_is_built_with_the_parts_that_are_missing() -> None:
    said = told("ModuleNotFoundError: No module named 'amp_C'")
    assert "--build-option=--cuda_ext" in said


def test_xformers_without_cuda_is_replaced_first() -> None:
    log = "`cutlassF` is not supported because:\n    xFormers wasn't build with CUDA support"
    assert told(log).startswith("`xformers` has no compiled part for CUDA")
    assert "xformers==0.0.29.post3" in told(f"torch 2.6.0+cu124\n{log}")
    assert "Each torchvision" not in told(log)


def test_a_mac_gets_no_commands_of_windows() -> None:
    said = told("OMP: Error #15: Initializing libomp.dylib, but found libiomp5.dylib already initialized.")
    assert "where /R" not in said
    assert "set KMP" not in said
    assert "export KMP_DUPLICATE_LIB_OK=TRUE" in said


def test_tensorboard_of_an_old_torch_wants_an_older_setuptools() -> None:
    said = told("AttributeError: module 'distutils' has no attribute 'version'")
    assert 'pip install "setuptools<59.6"' in said
    assert "setuptools<81" not in said


def test_what_pip_says_at_its_end_shows_an_isolated_build() -> None:
    end = "ERROR: Failed to build 'flash-attn' when getting requirements to build wheel"
    log = f"ModuleNotFoundError: No module named 'torch'\n{end}\n"
    assert diagnose_text(log).causes[0].label == "torch_missing_build_isolation"


def test_a_system_without_conda_updates_its_own_library() -> None:
    said = "version `GLIBCXX_3.4.32' not found (required by /a/b.so)"
    log = f"ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: {said}"
    assert "apt install --only-upgrade libstdc++6" in told(log)


def test_a_file_in_use_is_named() -> None:
    log = (
        "ERROR: [WinError 5] Access is denied: 'C:\\\\Python310\\\\Lib\\\\site-packages\\\\torch\\\\lib\\\\asmjit.dll'"
    )
    assert "`asmjit.dll` is in use" in told(log)


@pytest.mark.parametrize(
    ("log", "label", "says"),
    [
        ("No candidates were found for pytorch-cuda 12.8.*.", "python_no_wheel", "pytorch-cuda 12.4"),
        ("critical libmamba The following packages are not found: pytorch-cuda=12.9", "python_no_wheel", "conda-forge"),
        ("nothing provides cuda 12.4.* needed by pytorch-2.5.0", "python_no_wheel", "`cuda`"),
        ("└─ __cuda, which is missing on the system.", "dependency_conflict", "CONDA_OVERRIDE_CUDA"),
        (
            "Because only torch==2.0.1+cu118 is available and you require torch==2.1.0, it cannot be had.",
            "python_no_wheel",
            "has only `torch==2.0.1+cu118`",
        ),
        (
            "- torchvision requires Python >=3.8,<3.12, so it will not be installable for Python >=3.12,<4.0",
            "python_no_wheel",
            "`torchvision` wants Python >=3.8,<3.12",
        ),
        (
            "So, because app depends on both torch (^2.6.0) and triton (2.1.0), version solving failed.",
            "dependency_conflict",
            "poetry source add --priority explicit",
        ),
    ],
)
def test_every_resolver_is_understood(log: str, label: str, says: str) -> None:
    assert diagnose_text(f"{log}\n").causes[0].label == label
    assert says in told(log)


def test_uv_gets_commands_of_uv() -> None:
    log = "$ uv pip install torch\nerror: Failed to build `flash-attn`\nGetting requirements to build wheel\n"
    said = told(f"{log}ModuleNotFoundError: No module named 'torch'")
    assert 'no-build-isolation-package = ["flash-attn"]' in said
    assert "uv pip install --no-build-isolation flash-attn" in said


def test_torch_of_the_user_inside_an_environment_is_a_mixed_one() -> None:
    log = (
        '  File "C:\\miniforge3\\envs\\sam\\Lib\\site-packages\\torchvision\\__init__.py", line 10, in <module>\n'
        "AttributeError: module 'torch.library' has no attribute 'register_fake'\n"
        "C:\\Users\\me\\AppData\\Roaming\\Python\\Python311\\site-packages\\torch\\__init__.py\n"
    )
    assert diagnose_text(log).causes[0].label == "environment_mixed"
    assert "uninstall it there" in told(log)


def test_no_command_builds_for_windows_what_has_no_windows_build() -> None:
    frame = f'  File "{WINDOWS}\\flash_attn\\x.py", line 3, in <module>\n'
    failed = (
        "ImportError: DLL load failed while importing flash_attn_2_cuda: The specified procedure could not be found."
    )
    said = diagnose_text(f"{frame}{failed}\n")
    fix = said.causes[0].whole
    assert "no wheels for Windows" in fix.text
    assert [str(each) for each in fix.commands] == ["rekindle extension find flash-attn --env C:\\e"]
