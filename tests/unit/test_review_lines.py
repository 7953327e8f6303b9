"""Faults of CI and of the shells that a line shows by itself, and what looks like one and is none."""

from __future__ import annotations

import pytest

from rekindle.review.asked import told
from rekindle.review.document import read
from rekindle.review.review import review_script

STEPS = "on: push\njobs:\n  b:\n    runs-on: {}\n    steps:\n"


def ids(text: str, name: str) -> set[tuple[int, str]]:
    return {(remark.line, remark.id) for remark in review_script(read(text, name=name), told(("RTX 3090",))).remarks}


MEMORY = "for /f %%a in ('wmic ComputerSystem get TotalPhysicalMemory') do set MEM=%%a\n"
IMAGE = "FROM nvidia/cuda:12.8.0-devel-ubuntu24.04\nRUN apt-get update && apt-get install -y python3-pip\n"
OLD = "FROM nvidia/cuda:10.2-devel-ubuntu18.04\n"
TREE = "git clone --recursive https://github.com/pytorch/pytorch\ncd pytorch\npython setup.py {}\n"
CUDA = "      - uses: Jimver/cuda-toolkit@v0.2.14\n        with:\n          cuda: '{}'\n"
BUILD = (
    "      - run: pip install --no-build-isolation flash-attn\n        env:\n          TORCH_CUDA_ARCH_LIST: '8.6'\n"
)


@pytest.mark.parametrize(
    ("rule", "line", "name", "wrong", "right"),
    [
        ("runner-gone", 4, "w.yml", STEPS.format("ubuntu-20.04"), STEPS.format("ubuntu-22.04")),
        ("runner-gone", 4, "w.yml", STEPS.format("windows-2019"), STEPS.format("windows-2022")),
        ("runner-gone", 1, "w.yml", "os: [ubuntu-18.04, x]\njobs:\n", "os: [ubuntu-24.04]\njobs:\n"),
        (
            "action-gone", 6, "w.yml", STEPS.format("x") + "      - uses: actions/upload-artifact@v3\n",
            STEPS.format("x") + "      - uses: actions/upload-artifact@v4\n",
        ),
        (
            "action-gone", 6, "w.yml", STEPS.format("x") + "      - uses: actions/cache@v2\n",
            STEPS.format("x") + "      - uses: actions/cache@v4\n",
        ),
        (
            "github-path-variable", 6, "w.yml", STEPS.format("x") + '      - run: echo "A=/opt" >> $GITHUB_PATH\n',
            STEPS.format("x") + '      - run: echo "/opt/bin" >> $GITHUB_PATH\n',
        ),
        (
            "toolset-not-said", 9, "w.yml", STEPS.format("windows-latest") + CUDA.format("12.1.0") + BUILD,
            STEPS.format("windows-latest") + CUDA.format("12.6.3") + BUILD,
        ),
        (
            "continuation-powershell", 1, "a.ps1", "pip install torch \\\n  torchvision\n",
            "pip install torch `\n  torchvision\n",
        ),
        ("powershell-if-value", 1, "a.ps1", "$a = (if ($b) { 1 } else { 2 })\n", "$a = $(if ($b) { 1 } else { 2 })\n"),
        ("powershell-if-value", 1, "a.ps1", "f (if ($b) { 1 })\n", "$a = if ($b) { 1 } else { 2 }\n"),
        ("number-as-text", 1, "a.bat", "if %MEM% LSS 17179869184 set J=2\n", "if %MEM_GB% LSS 16 set J=2\n"),
        ("number-as-text", 1, "a.bat", 'if "%GB%" LSS "16" set J=2\n', 'if "%A%"=="16" set J=2\n'),
        ("number-as-text", 2, "a.bat", MEMORY + "if %MEM% GTR 16 set J=8\n", MEMORY + "if %OTHER% GTR 16 set J=8\n"),
        ("export-space", 1, "a.sh", "export MAX_JOBS =8\n", "export MAX_JOBS=8\n"),
        ("python-without-m", 1, "a.ps1", "python pip install torch\n", "python -m pip install torch\n"),
        (
            "page-misspelt", 1, "a.sh", "pip install torch-scatter -f https://data.pyg.org/whl/torch-2.1.0+cuda121.html\n",
            "pip install torch-scatter -f https://data.pyg.org/whl/torch-2.1.0+cu121.html\n",
        ),
        ("requirement-invalid", 1, "requirements.txt", "torch>=2.3.1+cu121\n", "torch>=2.3.1\n"),
        (
            "local-no-index", 1, "a.sh", "pip install torch==2.0.1+cu118\n",
            "pip install torch==2.0.1+cu118 -f https://download.pytorch.org/whl/torch_stable.html\n",
        ),
        ("local-no-index-list", 1, "requirements.txt", "torch==2.0.1+cu118\n", "torch==2.0.1\n"),
        (
            "get-pip-too-new", 2, "Dockerfile", OLD + "RUN wget https://bootstrap.pypa.io/get-pip.py\n",
            OLD + "RUN wget https://bootstrap.pypa.io/pip/3.6/get-pip.py\n",
        ),
        ("source-in-sh", 2, "Dockerfile", OLD + "RUN source run.sh\n", OLD + "RUN . ./run.sh\n"),
        (
            "source-in-sh", 2, "Dockerfile", OLD + "RUN cd x && source run.sh\n",
            OLD + 'SHELL ["/bin/bash", "-c"]\nRUN source run.sh\n',
        ),
        ("export-space", 1, "a.sh", "export MAX_JOBS= 8\n", "export MAX_JOBS= OTHER=3\n"),
        ("path-replaced", 1, "a.bat", "set PATH=C:\\CUDA\\bin\n", "set PATH=C:\\CUDA\\bin;%PATH%\n"),
        ("path-replaced", 1, "a.sh", "export PATH=/usr/local/cuda/bin\n", "export PATH=/usr/local/cuda/bin:$PATH\n"),
        ("path-replaced", 1, "a.ps1", "$env:PATH = 'C:\\CUDA\\bin'\n", "$env:PATH = \"C:\\CUDA\\bin;$env:PATH\"\n"),
        (
            "option-misspelt", 1, "a.sh", "pip install torch --inde-url https://x/simple\n",
            "pip install torch --extra-index https://x/simple --no-cache\n",
        ),
        (
            "python-managed", 3, "Dockerfile", IMAGE + "RUN pip3 install torch\n",
            IMAGE + "RUN pip3 install --break-system-packages torch\n",
        ),
        (
            "python-managed", 3, "Dockerfile", IMAGE + "RUN python3 -m pip install torch\n",
            IMAGE.replace("24.04", "22.04") + "RUN python3 -m pip install torch\n",
        ),
        (
            "torch-in-the-tree", 4, "a.sh", TREE.format("install") + "python -c 'import torch'\n",
            TREE.format("develop") + "python -c 'import torch'\n",
        ),
        (
            "torch-in-the-tree", 4, "a.sh", TREE.format("install") + "python -c 'import torch'\n",
            TREE.format("install") + "cd ..\npython -c 'import torch'\n",
        ),
    ],
)  # fmt: skip
def test_the_fault_and_the_right_line(rule: str, line: int, name: str, wrong: str, right: str) -> None:
    assert (line, rule) in ids(wrong, name)
    assert rule not in {each for _, each in ids(right, name)}


def test_what_is_commented_out_is_no_fault() -> None:
    assert not ids("on: push\njobs:\n# runs-on: ubuntu-20.04\n", "w.yml") & {(3, "runner-gone")}
