"""Every class of fault that `review` names, in the shells it occurs in, and what must not be called a fault."""

from __future__ import annotations

import pytest

from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge.builds.script_rules import script_rules
from rekindle.knowledge.gpu.capability import Capability
from rekindle.review.document import read
from rekindle.review.review import Reviewed, review_script

CUDA = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"
VCVARS = r"C:\Program Files\Microsoft Visual Studio\2022\Community\VC\Auxiliary\Build\vcvars64.bat"
TORCH_SH = "cd pytorch\npython setup.py bdist_wheel\n"
EXT_SH = "pip install --no-build-isolation -e submodules/simple-knn\n"


def reviewed(name: str, text: str, *, gpu: str | None = None, torch: str | None = None) -> Reviewed:
    return review_script(
        read(text, name=name),
        gpus=(Capability.parse(gpu),) if gpu else (),
        torch=Version(torch) if torch else None,
    )


def found(name: str, text: str, *, gpu: str | None = None, torch: str | None = None) -> list[tuple[str, int]]:
    answer = reviewed(name, text, gpu=gpu, torch=torch)
    return [(remark.id, remark.line) for remark in answer.remarks if remark.state is not State.PASS]


@pytest.mark.parametrize(
    ("value", "rule", "right"),
    [
        ("l2.0", "architecture-list", "12.0"),
        ("12.O", "architecture-list", "12.0"),
        ("12,0", "architecture-separator", None),
        ("12.0PTX", "architecture-list", "12.0+PTX"),
        ("Blackwell", "architecture-list", None),
        ("8.9,12.0", "architecture-separator", "8.9;12.0"),
        ("sm120", "architecture-list", "12.0"),
        ("sm_120", "architecture-list", "12.0"),
        ("compute_86", "architecture-list", "8.6"),
        ("120", "architecture-list", "12.0"),
        ("8.6+ptx", "architecture-list", "8.6+PTX"),
        ("8.4", "architecture-list", "8.0"),
    ],
)
def test_a_list_that_torch_cannot_read(value: str, rule: str, right: str | None) -> None:
    answer = reviewed("a.sh", f'export TORCH_CUDA_ARCH_LIST="{value}"\n{TORCH_SH}')
    remark = next(each for each in answer.remarks if each.id == rule)
    assert remark.state is State.FAIL and remark.line == 1
    if right is not None:
        assert remark.corrected == f'export TORCH_CUDA_ARCH_LIST="{right}"'


@pytest.mark.parametrize(
    "value", ["8.6", "8.6 9.0+PTX", "7.0;7.5;8.0+PTX", "12.0", "9.0a", "Ampere", "Turing;8.6", "Common"]
)
def test_a_list_that_torch_reads(value: str) -> None:
    rules = [rule for rule, _ in found("a.sh", f'export TORCH_CUDA_ARCH_LIST="{value}"\n{TORCH_SH}')]
    assert not [rule for rule in rules if rule.startswith("architecture")]


FAULTS = [
    # --- set too late, overwritten, switched off
    ("after-sh", "a.sh", TORCH_SH + "export TORCH_CUDA_ARCH_LIST=8.6\n", "architecture-after-build", 3, None, None),
    ("after-ps1", "a.ps1", "cd pytorch\npython setup.py bdist_wheel\n$env:TORCH_CUDA_ARCH_LIST = '8.6'\n",
     "architecture-after-build", 3, None, None),
    ("after-docker", "Dockerfile", "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nWORKDIR /pytorch\n"
     "RUN python setup.py install\nENV TORCH_CUDA_ARCH_LIST=8.6\n", "architecture-after-build", 4, None, None),
    ("overwritten", "a.bat", "set TORCH_CUDA_ARCH_LIST=7.5;8.6\nset TORCH_CUDA_ARCH_LIST=8.6\ncd pytorch\n"
     "python setup.py bdist_wheel\n", "architecture-overwritten", 2, None, None),
    ("jobs-late", "a.sh", TORCH_SH + "export MAX_JOBS=4\n", "setting-after-build", 3, None, None),
    ("cuda-off", "a.sh", "export USE_CUDA=0\n" + TORCH_SH, "cuda-off", 1, "8.6", None),
    ("cuda-off-list", "a.bat", "set USE_CUDA=OFF\nset TORCH_CUDA_ARCH_LIST=8.6\ncd pytorch\npython setup.py install\n",
     "cuda-off", 1, None, None),
    # --- the toolkit
    ("12.6-for-sm_120", "a.sh", "export CUDA_HOME=/usr/local/cuda-12.6\nexport TORCH_CUDA_ARCH_LIST=12.0\n" + TORCH_SH,
     "toolkit-cannot-target", 1, "12.0", None),
    ("image-for-kepler", "Dockerfile", "FROM nvidia/cuda:12.1.1-cudnn8-devel-ubuntu22.04\nENV TORCH_CUDA_ARCH_LIST=3.7\n"
     "RUN git clone --recursive https://github.com/pytorch/pytorch /pytorch && cd /pytorch && python setup.py install\n",
     "toolkit-cannot-target", 1, "3.7", None),
    ("cudnn-image", "Dockerfile", "FROM nvidia/cuda:12.1.1-cudnn8-devel-ubuntu22.04\nWORKDIR /pytorch\n"
     "RUN python setup.py install\n", "cudnn-not-for-the-card", 1, "3.7", None),
    ("cudnn-path", "a.bat", "set CUDNN_ROOT=D:\\cudnn-windows-x86_64-8.9.7.29_cuda11-archive\ncd pytorch\n"
     "python setup.py install\n", "cudnn-not-for-the-card", 1, "3.5", None),
    ("cudnn-nine", "a.sh", "export CUDNN_ROOT=/opt/cudnn-9.1.0\n" + TORCH_SH, "cudnn-too-new-for-torch", 1, None, "2.1.2"),
    ("cuda-13-for-2.5", "a.sh", "export CUDA_HOME=/usr/local/cuda-13.0\n" + TORCH_SH, "toolkit-too-new-for-torch", 1,
     None, "2.5.1"),
    ("cuda-11-for-2.11", "a.sh", "export CUDA_HOME=/usr/local/cuda-11.4\n" + TORCH_SH, "toolkit-too-old-for-torch", 1,
     None, "2.9.0"),
    ("sm_120-of-2.5", "a.sh", "export TORCH_CUDA_ARCH_LIST=12.0\n" + TORCH_SH, "architecture-syntax", 1, None, "2.5.1"),
    ("sm_120-of-2.1", "a.sh", "export TORCH_CUDA_ARCH_LIST='8.9;12.0'\n" + TORCH_SH, "architecture-syntax", 1, None, "2.1.2"),
    ("two-toolkits", "a.bat", "set CUDA_PATH=C:\\CUDA\\v12.4\nset PATH=C:\\CUDA\\v11.8\\bin;%PATH%\ncd pytorch\n"
     "python setup.py install\n", "two-toolkits", 2, None, None),
    ("extension-cuda", "a.sh", "pip install torch==2.4.0 --index-url https://download.pytorch.org/whl/cu118\n"
     "export CUDA_HOME=/usr/local/cuda-12.4\n" + EXT_SH, "toolkit-not-torchs", 2, None, None),
    ("runtime-image", "Dockerfile", "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\n"
     "RUN pip install flash-attn --no-build-isolation\n", "image-runtime", 1, None, None),
    # --- compilers
    ("gcc-13", "a.sh", "export CUDA_HOME=/usr/local/cuda-11.8\nexport CXX=g++-13\n" + EXT_SH, "gcc-refused", 2, None, None),
    ("gcc-module", "a.sh", "module load gcc/13.2.0 cuda/11.8.0\n" + EXT_SH, "gcc-refused", 1, None, None),
    ("toolset", "a.bat", f'call "{VCVARS}" -vcvars_ver=14.44\nset "CUDA_PATH={CUDA}\\v11.8"\ncd pytorch\n'
     "python setup.py install\n", "toolset-refused", 1, None, None),
    ("toolset-action", "ci.yml", "jobs:\n  w:\n    runs-on: windows-2022\n    steps:\n"
     "      - uses: ilammy/msvc-dev-cmd@v1\n        with:\n          toolset: '14.44'\n"
     "      - uses: Jimver/cuda-toolkit@v0.2.19\n        with:\n          cuda: '11.8.0'\n"
     "      - run: python setup.py bdist_wheel\n        env:\n          USE_KINETO: 0\n", "toolset-refused", 7, None, None),
    ("newest-toolset", "a.bat", f'call "{VCVARS}"\nset "CUDA_PATH={CUDA}\\v11.8"\ncd pytorch\npython setup.py install\n',
     "toolset-not-said", 1, None, None),
    ("no-vcvars", "a.bat", "cd pytorch\npython setup.py bdist_wheel\n", "no-vcvars", 2, None, None),
    ("no-vcvars-sdk", "a.bat", "set DISTUTILS_USE_SDK=1\npip install --no-build-isolation -e simple-knn\n", "no-vcvars-sdk",
     2, None, None),
    ("vcvars-in-child", "a.ps1", f'cmd /c "{VCVARS}"\ncd pytorch\npython setup.py bdist_wheel\n', "environment-lost", 1,
     None, None),
    ("vcvars-direct", "a.ps1", f'& "{VCVARS}"\ncd pytorch\npython setup.py bdist_wheel\n', "environment-lost", 1, None, None),
    ("vcvars32", "a.bat", "call vcvars32.bat\n", "x86-prompt", 1, None, None),
    ("vcvars-number", "a.bat", 'call vcvarsall.bat x64 -vcvars_ver=15\n', "vcvars-version", 1, None, None),
    ("use-sdk", "a.bat", f'call "{VCVARS}"\npip install --no-build-isolation ./nvdiffrast\n', "use-sdk-missing", 2, None, None),
    # --- environments
    ("call-activate", "a.bat", "venv\\Scripts\\activate\npip install torch\n", "call-missing", 1, None, None),
    ("call-activate-bat", "a.bat", "D:\\env\\Scripts\\activate.bat\npip install torch\n", "call-missing", 1, None, None),
    ("call-conda", "a.bat", "conda activate torch\npip install torch\n", "call-missing", 1, None, None),
    ("call-vcvars", "a.bat", f'"{VCVARS}"\ncl\n', "call-missing", 1, None, None),
    ("never-activated", "a.sh", "python3 -m venv env\npip install torch\n", "environment-not-activated", 1, None, None),
    ("never-activated-bat", "a.bat", "py -3.11 -m venv env\npip install torch\n", "environment-not-activated", 1, None, None),
    ("never-activated-conda", "a.sh", "conda create -y -n x python=3.10\npip install torch\n", "environment-not-activated", 1,
     None, None),
    ("another", "a.sh", "python -m venv one\nsource two/bin/activate\npip install torch\n", "environment-other", 1, None, None),
    ("conda-hook", "a.sh", "#!/bin/bash\nconda activate x\npip install torch\n", "conda-not-initialised", 2, None, None),
    ("setx", "a.bat", "setx TORCH_CUDA_ARCH_LIST 8.6\ncd pytorch\npython setup.py install\n", "lasting-only", 1, None, None),
    ("not-exported", "a.sh", "TORCH_CUDA_ARCH_LIST=8.6\n" + TORCH_SH, "not-exported", 1, None, None),
    ("run-export", "Dockerfile", "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN export TORCH_CUDA_ARCH_LIST=8.6\n"
     "RUN pip install flash-attn --no-build-isolation\n", "run-lost", 2, None, None),
    ("step-export", "ci.yml", "jobs:\n  b:\n    runs-on: ubuntu-22.04\n    steps:\n      - run: export MAX_JOBS=2\n"
     "      - run: pip install flash-attn --no-build-isolation\n", "run-lost", 5, None, None),
    ("env-command", "Dockerfile", "FROM ubuntu:22.04\nENV CMAKE_PREFIX_PATH=\"$(dirname $(which conda))/../\"\n",
     "env-not-run", 2, None, None),
    # --- jobs
    ("jobs-unset", "a.sh", TORCH_SH, "jobs-unset", 2, None, None),
    ("jobs-128", "a.sh", "export MAX_JOBS=128\n" + TORCH_SH, "jobs-absurd", 1, None, None),
    ("jobs-zero", "a.bat", "set MAX_JOBS=0\ncd pytorch\npython setup.py install\n", "jobs-unreadable", 1, None, None),
    ("jobs-word", "a.sh", "export MAX_JOBS=all\n" + TORCH_SH, "jobs-unreadable", 1, None, None),
    # --- cmd
    ("block", "a.bat", "if exist x (\nset ROOT=C:\\x\nset PATH=%ROOT%\\bin;%PATH%\n)\n", "block-expansion", 3, None, None),
    ("same-line", "a.bat", "set A=1 & echo %A%\n", "block-expansion-line", 1, None, None),
    ("redirect", "a.bat", "pip install numpy<2\n", "redirect", 1, None, None),
    ("redirect-more", "a.bat", "python -m pip install cmake>=3.18 ninja\n", "redirect", 1, None, None),
    ("redirect-sh", "a.sh", "pip install setuptools<=75.8.2\n", "redirect", 1, None, None),
    ("redirect-ps1", "a.ps1", "pip install numpy>=1.26\n", "redirect", 1, None, None),
    ("ampersand", "a.bat", "pip install git+https://github.com/a/b#egg=b&subdirectory=c\n", "ampersand", 1, None, None),
    ("spaces", "a.bat", "set USE_CUDA = 1\n", "set-with-spaces", 1, None, None),
    ("spaces-sh", "a.sh", "USE_CUDA = 1\n", "set-with-spaces", 1, None, None),
    ("trailing", "a.bat", "set USE_CUDA=1 && echo hi\n", "set-trailing-space", 1, None, None),
    ("quotes", "a.bat", 'set TORCH_CUDA_ARCH_LIST="8.6"\n', "architecture-quotes", 1, None, None),
    ("env-in-cmd", "a.bat", "$env:USE_CUDA = 1\n", "wrong-shell", 1, None, None),
    ("dollar-in-cmd", "a.bat", "cd $HOME/src\n", "wrong-shell", 1, None, None),
    ("dollar-in-set", "a.bat", "set CUDA_HOME=$CUDA_PATH\n", "wrong-shell", 1, None, None),
    ("export-in-cmd", "a.bat", "export USE_CUDA=1\n", "wrong-shell", 1, None, None),
    ("source-in-cmd", "a.bat", "source venv/bin/activate\n", "wrong-shell", 1, None, None),
    ("export-in-ps1", "a.ps1", "export USE_CUDA=1\n", "wrong-shell", 1, None, None),
    ("set-in-ps1", "a.ps1", "set USE_CUDA=1\n", "wrong-shell", 1, None, None),
    ("percent-in-ps1", "a.ps1", "cd %USERPROFILE%\\src\n", "wrong-shell", 1, None, None),
    ("set-in-sh", "a.sh", "set USE_CUDA=1\n", "wrong-shell", 1, None, None),
    ("percent-in-sh", "a.sh", "export CUDA_HOME=%CUDA_PATH%\n", "wrong-shell", 1, None, None),
    ("chain", "a.ps1", "pip install six && pip install ninja\n", "chain", 1, None, None),
    ("where", "a.ps1", "where cl\n", "where-alias", 1, None, None),
    ("undefined", "a.bat", "set CUDA_DIR=C:\\CUDA\\v12.4\nset PATH=%CUDADIR%\\bin;%PATH%\n", "undefined-near", 2, None, None),
    ("undefined-far", "a.bat", 'cd /d "%SOURCE_ROOT%"\npython setup.py bdist_wheel\n', "undefined", 1, None, None),
    ("continuation", "a.bat", "cmake .. -GNinja \\\n-DUSE_CUDA=ON\n", "continuation", 1, None, None),
    ("caret-space", "a.bat", "cmake .. ^ \n-DUSE_CUDA=ON\n", "continuation-space", 1, None, None),
    ("open-quote", "a.bat", 'call "C:\\VS\\vcvars64.bat\necho done\n', "quote-open", 1, None, None),
    ("drive", "a.bat", "cd D:\\src\npip install .\n", "cd-drive", 1, None, None),
    ("itself", "setup.bat", "pip install torch\nsetup.bat\n", "starts-itself", 2, None, None),
    # --- packages
    ("numpy", "a.sh", "pip install numpy\n" + TORCH_SH, "numpy-two", 1, None, "1.13.1"),
    ("numpy-2", "a.sh", "pip install 'numpy>=2'\n" + TORCH_SH, "numpy-two-pinned", 1, None, "2.0.1"),
    ("cmake", "a.sh", "pip install cmake ninja\n" + TORCH_SH, "cmake-four", 1, None, "2.5.1"),
    ("cmake-4", "a.sh", "pip install cmake==4.1.0\n" + TORCH_SH, "cmake-four", 1, None, "1.13.1"),
    ("python", "a.sh", "python3.12 -m venv env\nsource env/bin/activate\n" + TORCH_SH, "python-not-supported", 1, None, "1.13.1"),
    ("python-conda", "a.sh", "conda create -y -n b python=3.13\nsource activate b\npip install torch==2.1.2\n",
     "python-not-supported", 1, None, None),
    ("vision", "a.sh", "pip install torch==2.1.2 torchvision==0.17.0\n", "companion", 1, None, None),
    ("audio", "a.ps1", "pip install torch==2.7.1 torchaudio==2.6.0\n", "companion", 1, None, None),
    ("no-wheel-line", "a.sh", "pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu128\n",
     "torch-no-such-wheel", 1, None, None),
    ("wheel-card", "a.bat", "pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu124\n",
     "wheel-not-for-the-card", 1, "12.0", None),
    ("isolation-known", "a.sh", "pip install flash-attn\n", "isolation", 1, None, None),
    ("isolation-git", "a.bat", "pip install git+https://github.com/NVlabs/nvdiffrast\n", "isolation", 1, None, None),
    ("isolation-folder", "a.sh", "export TORCH_CUDA_ARCH_LIST=8.6\npip install -e .\n", "isolation-maybe", 2, None, None),
    ("setuptools", "a.sh", "pip install setuptools==80.0.0\n" + TORCH_SH, "setuptools-pin", 1, None, "2.5.1"),
    ("asks", "Dockerfile", "FROM ubuntu:22.04\nRUN apt-get update && apt-get install git\n", "install-asks", 2, None, None),
    ("uninstall", "a.bat", "pip uninstall torch\npip install torch\n", "uninstall-asks", 1, None, None),
    # --- source and failures
    ("stale", "a.sh", "git clone --recursive https://github.com/pytorch/pytorch\ncd pytorch\ngit checkout v2.8.0\n"
     "python setup.py bdist_wheel\n", "submodules-stale", 3, None, None),
    ("shallow", "a.sh", "git clone https://github.com/pytorch/pytorch\n" + TORCH_SH, "clone-not-recursive", 1, None, None),
    ("tee", "a.sh", "set -e\ncd pytorch\npython setup.py bdist_wheel 2>&1 | tee log\n", "tee", 3, None, None),
    ("tee-ps1", "a.ps1", "cd pytorch\npython setup.py bdist_wheel | Tee-Object log\nWrite-Host ok\n", "tee-powershell", 2,
     None, None),
    ("unchecked", "a.bat", "cd pytorch\npython setup.py bdist_wheel\necho done\n", "no-error-check", 2, None, None),
    ("success", "a.bat", "cd pytorch\npython setup.py bdist_wheel\nexit /b 0\n", "always-success", 3, None, None),
    ("build-number", "a.sh", "export PYTORCH_BUILD_VERSION=2.5.1\n" + TORCH_SH, "build-number-missing", 1, None, None),
    ("unknown-option", "a.sh", "export USE_CUDA_ARCH=6.1\n" + TORCH_SH, "option-unknown", 1, None, None),
    ("line-ends", "a.sh", "make\r\n", "line-ends", 1, None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "rule", "line", "gpu", "torch"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_the_fault_is_found(name: str, text: str, rule: str, line: int, gpu: str | None, torch: str | None) -> None:
    assert (rule, line) in found(name, text, gpu=gpu, torch=torch)


RIGHT = [
    ("docker-comment", "Dockerfile", "# build\nFROM ubuntu:22.04\n# more\nRUN apt-get update \\\n  # inside\n  && apt-get install -y git\n"),
    ("docker-space", "Dockerfile", "FROM ubuntu:22.04\nRUN pip install --upgrade pip && \\ \n    pip install six\n"),
    ("bash-e", "a.sh", "#!/bin/bash -e\npip install six\npython -m pip install ninja\n"),
    ("cd-then-drive", "a.bat", "cd d:\\src\nd:\npip install six\n"),
    ("exit-0-checked", "a.bat", f'call "{VCVARS}" || exit /b 1\nset MAX_JOBS=4\ncd pytorch || exit /b 1\n'
     "python setup.py bdist_wheel || exit /b 1\nexit /b 0\n"),
    ("build-test", "a.sh", "set -e\nexport BUILD_TEST=0\nexport MAX_JOBS=4\n" + TORCH_SH),
    ("pure-python", "a.sh", "set -e\npip install -e .\n"),
    ("isolation-off", "a.sh", "set -e\nexport MAX_JOBS=4\npip install flash-attn --no-build-isolation\n"),
    ("quoted", "a.bat", 'pip install "numpy<2" "cmake>=3.18"\n'),
    ("log-redirect", "a.bat", "pip install six > install.log 2>&1\n"),
    ("delayed", "a.bat", "setlocal EnableDelayedExpansion\nif exist x (\nset ROOT=C:\\x\nset PATH=!ROOT!\\bin;%PATH%\n)\n"),
    ("called", "a.bat", "call venv\\Scripts\\activate.bat\ncall conda activate x\npip install six\n"),
    ("devshell", "a.ps1", "& 'C:\\VS\\Common7\\Tools\\Launch-VsDevShell.ps1' -Arch amd64\n$env:MAX_JOBS = '4'\ncd pytorch\n"
     "python setup.py bdist_wheel\nif ($LASTEXITCODE -ne 0) { throw 'build' }\n"),
    ("vcvars-taken-over", "a.ps1", f"cmd /c \"`\"{VCVARS}`\" && set\" | ForEach-Object {{ if ($_ -match '^(.*?)=(.*)$') "
     "{ Set-Item \"Env:$($Matches[1])\" $Matches[2] } }\n$env:MAX_JOBS = '4'\ncd pytorch\npython setup.py bdist_wheel\n"
     "if ($LASTEXITCODE -ne 0) { exit 1 }\n"),
    ("updated", "a.sh", "set -e\ngit clone https://github.com/pytorch/pytorch\ncd pytorch\ngit checkout v2.8.0\n"
     "git submodule update --init --recursive\nexport MAX_JOBS=4\npython setup.py bdist_wheel\n"),
    ("other-tag", "a.sh", "set -e\ngit clone https://github.com/NVIDIA/apex\ncd apex\ngit checkout v2.3.0\n"),
    ("pair", "a.sh", "pip install torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 --index-url "
     "https://download.pytorch.org/whl/cu124\n"),
    ("uv", "a.sh", "set -e\nuv venv --python 3.11\nuv pip install torch\n"),
    ("docker-path", "Dockerfile", "FROM ubuntu:22.04\nRUN python3 -m venv /opt/env\nENV PATH=/opt/env/bin:$PATH\n"
     "RUN pip install six\n"),
    ("env-python", "a.sh", "set -e\npython3 -m venv env\nenv/bin/pip install six\n"),
    ("pipefail", "a.sh", "set -euo pipefail\nexport MAX_JOBS=4\ncd pytorch\npython setup.py bdist_wheel | tee log\n"),
    ("workflow-bash", "ci.yml", "jobs:\n  b:\n    runs-on: windows-2022\n    steps:\n      - shell: bash\n"
     "        run: |\n          export MAX_JOBS=2\n          pip install flash-attn --no-build-isolation\n"),
    ("gitlab", ".gitlab-ci.yml", "build:\n  image: nvidia/cuda:12.4.1-devel-ubuntu22.04\n  variables:\n    MAX_JOBS: '2'\n"
     "    TORCH_CUDA_ARCH_LIST: '8.6'\n  script:\n    - pip install flash-attn --no-build-isolation\n"),
    ("default", "a.sh", 'set -e\nexport MAX_JOBS=${MAX_JOBS:-4}\nexport TORCH_CUDA_ARCH_LIST="${TORCH_CUDA_ARCH_LIST:-8.6}"\n' + TORCH_SH),
    ("branches", "a.sh", 'set -e\nexport MAX_JOBS=2\nif [ "$1" = a ]; then\n  export TORCH_CUDA_ARCH_LIST=7.5\nelse\n'
     "  export TORCH_CUDA_ARCH_LIST=8.6\nfi\n" + TORCH_SH),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [row[1:] for row in RIGHT], ids=[row[0] for row in RIGHT])
def test_what_is_right_is_left_alone(name: str, text: str) -> None:
    answer = reviewed(name, text)
    assert [(each.id, each.line, each.found) for each in answer.remarks if each.state is not State.PASS] == []
    assert answer.not_understood == ()


def test_every_rule_of_the_table_is_raised_somewhere() -> None:
    """A row that no code names is a rule that cannot fail."""
    from pathlib import Path

    import rekindle.review

    code = "".join(path.read_text(encoding="utf-8") for path in Path(rekindle.review.__file__).parent.rglob("*.py"))
    unused = [row.id for row in script_rules().rule if f'"{row.id}"' not in code and not row.id.startswith("option-n")]
    assert unused == []


def test_no_word_in_braces_is_left_in_a_sentence() -> None:
    for _, name, text, _, _, gpu, torch in FAULTS:
        for remark in reviewed(name, text, gpu=gpu, torch=torch).remarks:
            for sentence in (remark.found, remark.why, remark.source or ""):
                assert "{" not in sentence.replace("${", "").replace("{0}", ""), (remark.id, sentence)
