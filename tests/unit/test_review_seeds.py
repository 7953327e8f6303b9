"""The errors of the hand-written recipes that Rekindle began with, each in a small script of its own."""

from __future__ import annotations

import pytest

from rekindle.knowledge.gpu.gpus import capabilities_of
from rekindle.review.document import read
from rekindle.review.question import Asked
from rekindle.review.review import review_script

TORCH = "cd /d C:\\src\\pytorch\ngit checkout v1.12.1\ngit submodule update --init --recursive\n"
BUILD = "python setup.py bdist_wheel || exit /b 1\n"
CMAKE = "cmake .. -G Ninja -DUSE_CUDNN=ON {} \n"
CASES: list[tuple[str, str, str | None, str]] = [
    # id of the rule, script, GPU, name
    ("requirement-twice", "pip install numpy pyyaml numpy cmake ninja\n", None, "a.bat"),
    ("build-not-installed", f"{TORCH}pip install numpy\npython -m build --wheel --no-isolation\n", None, "a.bat"),
    ("option-limited", f"{TORCH}set CMAKE_ARGS=-DCMAKE_POLICY_VERSION_MINIMUM=3.5\n{BUILD}", None, "a.bat"),
    ("option-never-existed", f"{TORCH}set USE_CUPTI=0\n{BUILD}", None, "a.bat"),
    ("option-limited", f"{TORCH}set USE_AVX=0\n{BUILD}", None, "a.bat"),
    ("cd-unquoted", f"cd C:\\Users\\%USERNAME%\\pytorch\n{BUILD}", None, "a.bat"),
    ("rmdir-unchecked", f"{TORCH}rmdir /s /q build\n{BUILD}", None, "a.bat"),
    ("pause", f"{TORCH}{BUILD}pause\n", None, "a.bat"),
    ("placeholder", "cd C:\\Users\\<You>\\pytorch\n", None, "a.bat"),
    ("x86-prompt", f'call "C:\\VS\\VC\\Auxiliary\\Build\\vcvars32.bat"\n{TORCH}{BUILD}', None, "a.bat"),
    ("quote-open", 'call "C:\\VS\\VC\\Auxiliary\\Build\\vcvars64.bat\n', None, "a.bat"),
    ("quote-open", 'cmake .. -DCMAKE_C_FLAGS="/arch:SSE4.1 ^\n-DUSE_CUDNN=ON\n', None, "a.bat"),
    ("switch-unknown", CMAKE.format('-DCMAKE_CXX_FLAGS="/arch:SSE4.1"'), None, "a.bat"),
    ("flags-replaced", CMAKE.format('-DCMAKE_CXX_FLAGS="/arch:AVX2"'), None, "a.bat"),
    ("python-not-supported", f"py -3.11 -m venv env\ncall env\\Scripts\\activate\n{TORCH}{BUILD}", None, "a.bat"),
    ("bad-pin", "pip install ninja==1.13.0\n", None, "a.bat"),
    ("pin-needs-python", "py -3.10 -m venv e\ncall e\\Scripts\\activate\npip install numpy==2.4.1\n", None, "a.bat"),
    ("delayed-expansion", "setlocal EnableDelayedExpansion\nset PATH=C:\\x;%PATH%\n", None, "a.bat"),
    ("always-success", f"{TORCH}python setup.py bdist_wheel\nexit /b 0\n", None, "a.bat"),
    ("option-no-effect", f"{TORCH}set CUDA_TOOLKIT_ROOT_DIR=C:\\cuda\n{BUILD}", None, "a.bat"),
    ("option-no-effect", f"{TORCH}set CUDA_ROOT=C:\\cuda\n{BUILD}", None, "a.bat"),
    ("architecture-not-the-card", f"set TORCH_CUDA_ARCH_LIST=8.9\n{TORCH}{BUILD}", "RTX 5070", "a.bat"),
    ("toolkit-not-for-the-card", f"set CUDA_HOME=C:\\CUDA\\v12.3\n{TORCH}{BUILD}", "RTX 5070", "a.bat"),
    ("continuation", "cmake -S . -B build \\\n -DUSE_CUDNN=ON\n", None, "a.bat"),
    (
        "unsupported-compiler-flag",
        "set CUDA_HOME=C:\\CUDA\\v12.3\n" + CMAKE.format("-DCMAKE_CUDA_FLAGS=-allow-unsupported-compiler"),
        None,
        "a.bat",
    ),
    (
        "unsupported-compiler-needless",
        "set CUDA_HOME=C:\\CUDA\\v12.9\n" + CMAKE.format("-DCMAKE_CUDA_FLAGS=-allow-unsupported-compiler"),
        None,
        "a.bat",
    ),
    ("where-alias", "where cl\n", None, "a.ps1"),
    ("option-never-existed", CMAKE.format("-DUSE_CAFFE2=OFF"), None, "a.bat"),
    ("option-never-existed", CMAKE.format("-DCAFFE2_USE_PTHREADPOOL=OFF"), None, "a.bat"),
    ("option-no-effect", CMAKE.format("-DUSE_PTHREADPOOL=OFF"), None, "a.bat"),
    ("option-no-effect", CMAKE.format("-DCMAKE_CUDA_ARCHITECTURES=89"), None, "a.bat"),
    ("option-default", CMAKE.format("-DUSE_SYSTEM_PTHREADPOOL=OFF"), None, "a.bat"),
    ("option-redundant", CMAKE.format("-DUSE_DISTRIBUTED=OFF -DUSE_NCCL=OFF"), None, "a.bat"),
    ("option-no-effect", CMAKE.format("-DCMAKE_CXX_USE_RESPONSE_FILE_FOR_OBJECTS=ON"), None, "a.bat"),
    ("flag-mp-with-ninja", CMAKE.format('-DCMAKE_CXX_FLAGS="/MP"'), None, "a.bat"),
    ("comment", f"# build\n{TORCH}{BUILD}", None, "a.bat"),
    ("libtorch-only", CMAKE.format(""), None, "a.bat"),
    ("architecture-syntax", f"set TORCH_CUDA_ARCH_LIST=12.0\n{TORCH}{BUILD}", None, "a.bat"),
]


@pytest.mark.parametrize(("rule", "text", "gpu", "name"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)])
def test_an_error_of_the_recipes_is_found(rule: str, text: str, gpu: str | None, name: str) -> None:
    answer = review_script(read(text, name=name), Asked(gpus=capabilities_of((gpu,)) if gpu else ()))
    assert rule in {remark.id for remark in answer.remarks}
