"""Faults of CI and of the shells that a line shows by itself, and what looks like one and is none."""

from __future__ import annotations

import pytest

from rekindle.review.document import read
from rekindle.review.question import question_from_options
from rekindle.review.review import review_script

STEPS = "on: push\njobs:\n  b:\n    runs-on: {}\n    steps:\n"


MINI = "https://repo.anaconda.com/miniconda/Miniconda3-latest-Linux-x86_64.sh"


def ids(text: str, name: str) -> set[tuple[int, str]]:
    return {
        (remark.line, remark.id)
        for remark in review_script(read(text, name=name), question_from_options(("RTX 3090",))).remarks
    }


MEMORY = "for /f %%a in ('wmic ComputerSystem get TotalPhysicalMemory') do set MEM=%%a\n"
IMAGE = "FROM nvidia/cuda:12.8.0-devel-ubuntu24.04\nRUN apt-get update && apt-get install -y python3-pip\n"
UV = "FROM python:3.12\nRUN uv pip install"
BARE = "FROM nvidia/cuda:12.1.0-base-ubuntu22.04\n"
CUDA_118 = "conda install pytorch pytorch-cuda=11.8"
EXCLUDE = "jobs:\n  a:\n    strategy:\n      matrix:\n        {}:\n          - {}\n    runs-on: ${{{{ matrix.os }}}}\n"
IMAGE_37 = "FROM pytorch/pytorch:1.10.0-cuda11.3-cudnn8-devel\n"
OPTION = "pip install git+https://github.com/NVIDIA/MinkowskiEngine --install"
SPLATTING = "git clone https://github.com/graphdeco-inria/gaussian-splatting\n"
SPLATS = "cd gaussian-splatting && pip install submodules/diff-gaussian-rasterization\n"
TCNN = "git clone https://github.com/NVlabs/tiny-cuda-nn"
LIGHTNING = "pip install pytorch-lightning==1.7.7\n"
PY, NUMBA = "FROM python:3.", "RUN pip install numba==0.56.4"
NUMPY = "RUN pip install numpy"
UPDATE = "RUN apt-get update\n"
RUNNER = "on: push\njobs:\n  t:\n    runs-on: windows-latest\n    steps:\n"
CLONE = "git clone https://github.com/pytorch/pytorch\n"
OLD = "FROM nvidia/cuda:10.2-devel-ubuntu18.04\n"
LINK_37 = "RUN apt-get install -y python3.7 && ln -sv /usr/bin/python3.7 /usr/bin/python\n"
TREE = "git clone --recursive https://github.com/pytorch/pytorch\ncd pytorch\npython setup.py {}\n"
CUDA = "      - uses: Jimver/cuda-toolkit@v0.2.14\n        with:\n          cuda: '{}'\n"
BUILD = (
    "      - run: pip install --no-build-isolation flash-attn\n        env:\n          TORCH_CUDA_ARCH_LIST: '8.6'\n"
)


@pytest.mark.parametrize(
    ("rule", "line", "name", "wrong", "right"),
    [
        ("runner-gone", 4, "w.yml", STEPS.format("ubuntu-20.04"), STEPS.format("ubuntu-22.04")),
        (
            "no-such-installer",
            2,
            "Dockerfile",
            "FROM nvidia/cuda:12.9.1-cudnn-devel-ubi9\nRUN apt-get install -y git\n",
            "FROM nvidia/cuda:12.9.1-cudnn-devel-ubi9\nRUN dnf install -y git\n",
        ),
        ("image-old-key", 2, "Dockerfile", f"{IMAGE_37}{UPDATE}", f"{IMAGE_37.replace('devel', 'runtime')}{UPDATE}"),
        ("image-old-key", 2, "Dockerfile", f"{IMAGE_37}{UPDATE}", f"{IMAGE_37.replace('1.10', '1.12')}{UPDATE}"),
        (
            "image-old-key",
            2,
            "Dockerfile",
            f"{IMAGE_37}RUN apt update -y && apt install -y git\n",
            f"{IMAGE_37}RUN rm /etc/apt/sources.list.d/cuda.list\n{UPDATE}",
        ),
        ("install-option-gone", 1, "a.sh", f"{OPTION}-option=--x\n", f"pip install pip==22.3\n{OPTION}-option=--x\n"),
        ("install-option-gone", 1, "a.sh", f"{OPTION}-option --x\n", f"{OPTION[:-9]}--global-option --x\n"),
        ("clone-not-recursive", 1, "a.sh", f"{SPLATTING}{SPLATS}", f"{SPLATTING[:-1]} --recursive\n{SPLATS}"),
        (
            "clone-not-recursive",
            1,
            "a.sh",
            f"{SPLATTING}{SPLATS}",
            f"{SPLATTING}git -C gaussian-splatting submodule update --init\n{SPLATS}",
        ),
        ("clone-not-recursive", 1, "a.sh", f"{TCNN} n\npip install ./n/bindings/torch\n", f"{TCNN} n\nls n\n"),
        ("clone-not-recursive", 1, "a.bat", f"{TCNN}\ncd tiny-cuda-nn\npip install .\n", f"{TCNN}\npip install .\n"),
        ("typeset-characters", 1, "a.sh", "conda update —all -y\n", "conda update --all -y\n"),
        ("typeset-characters", 1, "a.sh", f"{CUDA_118} -c pytorch - c nvidia\n", f"{CUDA_118} -c pytorch -c nvidia\n"),
        ("typeset-characters", 1, "a.sh", "pip install “torch==2.6.0”\n", 'pip install "torch==2.6.0"\n'),
        ("typeset-characters", 2, "a.md", "```\npip install –upgrade pip\n```\n", "pip install – or conda – pip\n"),
        ("typeset-characters", 2, "Dockerfile", "FROM x\nRUN pip3 install –U torch\n", "FROM x\nRUN echo pip – c x\n"),
        ("typeset-characters", 1, "a.sh", "pip install torch - -index-url x\n", "pip install -r - < list.txt\n"),
        ("no-such-installer", 2, "Dockerfile", f"FROM x:3.11-alpine\n{UPDATE}", f"FROM x:3.11\n{UPDATE}"),
        ("runner-gone", 4, "w.yml", STEPS.format("windows-2019"), STEPS.format("windows-2022")),
        ("pin-not-for-this-pip", 2, "a.sh", f"pip install -U pip\n{LIGHTNING}", f"pip install pip==24.0\n{LIGHTNING}"),
        (
            "backend-auto-in-image",
            2,
            "Dockerfile",
            "FROM python:3.12\nRUN uv pip install --system torch --torch-backend=auto\n",
            "FROM python:3.12\nRUN uv pip install --system torch --torch-backend=cu126\n",
        ),
        ("uv-no-environment", 1, "a.sh", "uv pip install torch\nuv venv\n", "uv venv\nuv pip install torch\n"),
        ("uv-no-environment", 2, "Dockerfile", f"{UV} torch\n", f"{UV} --system torch\n"),
        ("install-asks", 2, "Dockerfile", "FROM x\nRUN apt-get install git\n", "FROM x\nRUN conda install git\n"),
        ("placeholder", 2, "a.md", "```\ncd /path/to/it\n```\n", "```\npython a.py --data /path/to/it\n```\n"),
        ("requirement-invalid", 1, "a.sh", "pip install torch, numpy\n", "pip install torch numpy\n"),
        ("requirement-invalid", 1, "a.sh", "pip install torch=2.0.1\n", "conda install pytorch=2.0.1\n"),
        ("requirement-invalid", 2, "requirements.txt", "six\njupyter notebook\n", "six\nsix ; os_name != 'a'\n"),
        ("requirement-invalid", 1, "requirements.txt", "pip install six==1.2\n", "pip==24.0 --hash=sha256:a\n"),
        ("placeholder", 1, "a.sh", "echo hi; cd /path/to/it\n", "if x; then log \"chown -R a /path/to/it\"; fi\n"),
        ("placeholder", 2, "Dockerfile", "FROM x\nRUN cd /path/to/it\n",
         "FROM x\nRUN printf '%s' \\\n '  echo \"mount /path/to/your/data\"' > a.sh\n"),
        ("requirement-conflict", 2, "requirements.txt", "six==1.1\nsix==1.2\n", "six==1.1\nsix==1.1\n"),
        ("no-such-tag", 1, "Dockerfile", "FROM nvidia/cuda:12.1-base\n", "FROM nvidia/cuda:12.1.0-base-ubuntu22.04\n"),
        ("no-such-tag", 1, "Dockerfile", "FROM pytorch/pytorch:2.1.0-cuda12.1\n", "FROM pytorch/pytorch:latest\n"),
        ("image-lacks", 2, "Dockerfile", f"{BARE}RUN pip install six\n", f"{BARE}RUN apt install -y python3-pip\n"),
        ("image-lacks", 2, "Dockerfile", "FROM python:3\nRUN conda install six\n", "FROM x\nRUN conda install six\n"),
        ("conda-channel-missing", 1, "a.sh", f"{CUDA_118} -c nvidia\n", f"{CUDA_118} -c pytorch -c nvidia\n"),
        ("list-option-behind", 1, "requirements.txt", "torch-scatter -f http://x/y\n", "-f http://x/y\ntorch-scatter\n"),
        ("conda-build-of-pip", 2, "a.txt", "python=3.9\nsix=1.3.4=pypi_0\n", "python=3.9\nsix=1.3.4=py39_0\n"),
        ("option-of-others", 1, "a.sh", "pip3 install torch -y\n", "conda install pytorch -y\n"),
        ("conda-create-env", 1, "a.sh", "conda create env -n x python=3.10\n", "conda env create -f x.yml\n"),
        ("pin-needs-python", 2, "Dockerfile", f"{IMAGE_37}{NUMPY}~=1.22.0\n", f"{IMAGE_37}{NUMPY}~=1.21.0\n"),
        ("pin-for-older-python", 2, "Dockerfile", f"{PY}12\n{NUMPY}==1.23.5\n", f"{PY}12\n{NUMPY}==1.26.4\n"),
        ("pin-for-older-python", 2, "Dockerfile", f"{PY}11\n{NUMBA}\n", f"{PY}10\n{NUMBA}\n"),
        ("pin-needs-python", 2, "Dockerfile", f"{IMAGE_37}{NUMPY}==1.22.4\n", f"{IMAGE_37}{NUMPY}==1.21.6\n"),
        (
            "runner-gone", 7, "w.yml", EXCLUDE.format("include", "\n            os: windows-2019"),
            EXCLUDE.format("exclude", "\n            os: windows-2019"),
        ),
        (
            "runner-gone", 6, "w.yml", EXCLUDE.format("include", "{os: windows-2019}"),
            EXCLUDE.format("exclude", "{os: windows-2019}"),
        ),
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
            "cards-hidden", 6, "w.yml", STEPS.format("x") + "      - run: export CUDA_VISIBLE_DEVICES=all\n",
            STEPS.format("x") + "      - run: export CUDA_VISIBLE_DEVICES=${{ inputs.cards }}\n",
        ),
        (
            "install-asks", 7, "w.yml", STEPS.format("x\n    container: a") + "      - run: apt install git\n",
            STEPS.format("x") + "      - run: apt install git\n",
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
        (
            "get-pip-too-new", 3, "Dockerfile", OLD + LINK_37 + "RUN wget https://bootstrap.pypa.io/get-pip.py\n",
            OLD + LINK_37 + "RUN wget https://bootstrap.pypa.io/pip/3.7/get-pip.py\n",
        ),
        # A redirection belongs to the last command of a list, and what stands behind it to that command.
        ("redirect-out", 1, "a.sh", "cd x && pip install torch>=2 numpy\n", 'cd x && pip install "torch>=2" numpy\n'),
        (
            "wheel-not-for-the-card", 1, "a.sh", "cd x && pip install numpy>=2 torch==1.6.0+cu101\n",
            'cd x && pip install "numpy>=2" torch==2.8.0\n',
        ),
        ("source-in-sh", 2, "Dockerfile", OLD + "RUN source run.sh\n", OLD + "RUN . ./run.sh\n"),
        (
            "source-in-sh", 2, "Dockerfile", OLD + "RUN cd x && source run.sh\n",
            OLD + 'SHELL ["/bin/bash", "-c"]\nRUN source run.sh\n',
        ),
        ("not-for-sh", 2, "a.sh", "#!/bin/sh\nsource a/bin/activate\n", "#!/bin/bash\nsource a/bin/activate\n"),
        ("not-for-sh", 2, "a.sh", "#!/bin/sh\nset -euo pipefail\n", "#!/bin/sh\nset -eu\n"),
        ("not-for-sh", 2, "a.sh", "#!/bin/sh\nif [[ -d x ]]; then :; fi\n", "#!/bin/sh\nif [ -d x ]; then :; fi\n"),
        (
            "stub-at-run-time", 1, "a.sh", "export LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LD_LIBRARY_PATH\n",
            "export LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LIBRARY_PATH\n",
        ),
        (
            "submodules-not-recursive", 2, "a.sh", f"{CLONE}git submodule update --init\n",
            f"{CLONE}git submodule update --init --recursive\n",
        ),
        (
            "set-with-quotes", 1, "a.bat", 'set CUDNN_ROOT="C:\\tools\\cudnn"\n', 'set "CUDNN_ROOT=C:\\tools\\cudnn"\n',
        ),
        ("no-star-for-pip", 1, "a.ps1", "pip install dist\\*.whl\n", "pip install (Get-Item dist\\*.whl)\n"),
        ("no-star-for-pip", 1, "a.bat", "pip install -U dist\\*.whl\n", "for %%f in (*.whl) do pip install %%f\n"),
        ("loop-variable", 1, "a.bat", "for /r %i in (*.whl) do echo %i\n", "for /r %%i in (*.whl) do echo %%i\n"),
        ("folder-lost", 2, "Dockerfile", OLD + "RUN cd apex\nRUN make\n", OLD + "RUN cd apex && make\n"),
        ("folder-lost", 2, "Dockerfile", OLD + "RUN cd /a\nRUN make\n", OLD + "WORKDIR /a\nRUN cd /a\nRUN make\n"),
        ("export-lost", 2, "Dockerfile", OLD + "RUN export A=1\nRUN make\n", OLD + "RUN export A=1 && make\n"),
        (
            "folder-lost", 6, "ci.yml", RUNNER + "      - run: cd x\n      - run: make\n",
            RUNNER + "      - run: cd x && make\n",
        ),
        (
            "studio-not-on-runner", 6, "ci.yml",
            RUNNER + '      - run: dir "C:\\Program Files (x86)\\Microsoft Visual Studio\\2019"\n',
            RUNNER + '      - run: dir "C:\\Program Files\\Microsoft Visual Studio\\2022"\n',
        ),
        (
            "failure-waved-through", 3, "a.sh", TREE.format("bdist_wheel || true"),
            TREE.format("bdist_wheel || exit 1"),
        ),
        ("make-line-lost", 2, "Makefile", "a:\n\tcd ext\n\tmake\n", "a:\n\tcd ext && make\n"),
        ("make-line-lost", 2, "Makefile", "a:\n\tconda activate x\n\tmake b\n", "a:\n\tconda activate x && make b\n"),
        ("make-line-lost", 2, "Makefile", "a:\n\t@. v/bin/activate\n\tls\n", "a:\n\t. v/bin/activate; ls\n"),
        ("activate-not-sourced", 1, "a.sh", "v/bin/activate\npip list\n", ". v/bin/activate\npip list\n"),
        (
            "conda-terms", 2, "Dockerfile", "FROM continuumio/miniconda3\nRUN conda install -y git\n",
            "FROM continuumio/miniconda3\nRUN conda tos accept && conda install -y git\n",
        ),
        (
            "conda-terms", 3, "Dockerfile", f"FROM ubuntu\nRUN curl {MINI} && bash M.sh -b\nRUN conda create -n a\n",
            f"FROM ubuntu\nRUN curl -LO {MINI} && bash Mini*.sh -b\nRUN conda create -n a --override-channels\n",
        ),
        (
            "expression-without-sign", 6, "ci.yml", RUNNER + "      - name: {{ x.y }}\n        run: make\n",
            RUNNER + "      - name: ${{ x.y }}\n        run: make\n",
        ),
        (
            "environment-not-activated", 2, "README.md", "```sh\nconda create -n x python=3.8\npip list\n```\n",
            "Activate it.\n```sh\nconda create -n x python=3.8\npip list\n```\n",
        ),
        ("make-dollar", 2, "Makefile", "a:\n\techo $PATH\n", "a:\n\techo $$PATH\n"),
        (
            "cudatoolkit-not-read", 1, "a.sh", "conda install pytorch==2.2.0 cudatoolkit=11.8 -c pytorch\n",
            "conda install pytorch==2.2.0 pytorch-cuda=11.8 -c pytorch -c nvidia\n",
        ),
        (
            "cudatoolkit-not-read", 3, "environment.yml", "dependencies:\n  - pytorch=2.2.0\n  - cudatoolkit=11.8\n",
            "dependencies:\n  - pytorch=1.12.1\n  - cudatoolkit=11.3\n",
        ),
        ("no-nccl-on-windows", 1, "a.bat", "set USE_NCCL=1\n", "set USE_NCCL=0\n"),
        (
            "built-replaced", 4, "a.sh", TREE.format("develop") + "pip install torchvision==0.19.0\n",
            TREE.format("develop") + "pip install --no-deps torchvision==0.19.0\n",
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
            "llama-cpp-changed", 1, "a.sh", "CMAKE_ARGS='-DLLAMA_CUBLAS=on' pip install llama-cpp-python\n",
            "CMAKE_ARGS='-DLLAMA_CUBLAS=on' pip install llama-cpp-python==0.2.60\n",
        ),
        (
            "conda-version-glued", 2, "environment.yml", "dependencies:\n  - ffmpeg-4.0\n",
            "dependencies:\n  - ffmpeg=4.0\n  - gcc_linux-64\n",
        ),
        (
            "no-such-mirror", 2, "Dockerfile", "FROM nvidia/cuda:11.3.1-devel-centos7\nRUN yum install -y git\n",
            "FROM rockylinux:9\nRUN dnf install -y git\n",
        ),
        (
            "apt-package-gone", 2, "Dockerfile", "FROM python:3.11-slim\nRUN apt-get install -y libgl1-mesa-glx\n",
            "FROM python:3.11-slim-bookworm\nRUN apt-get install -y libgl1-mesa-glx\n",
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


def test_what_stands_behind_a_redirection_is_still_asked_for() -> None:
    """The shell takes one word for the file; `xformers` behind it is installed, and brings a torch of its own."""
    text = "FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-devel\nRUN pip install einops>=1 xformers\n"
    found = review_script(read(text, name="Dockerfile"), question_from_options(("GTX 1080 Ti",)))
    assert found.refused and found.torch == "2.14.1", "the newest for the Python 3.10 of that image"
    states = {remark.id: remark.state.value for remark in found.remarks}
    assert states["redirect-out"] == "WARN", "it is installed all the same"


def test_of_two_commands_on_a_line_the_one_that_builds_is_corrected() -> None:
    text = "pip install torch==2.7.1 ; pip install torch-scatter\n"
    found = review_script(read(text, name="a.sh"), question_from_options(("RTX 3090",)))
    corrected = [remark.corrected for remark in found.remarks if remark.id == "isolation"]
    assert corrected == ["pip install torch==2.7.1 ; pip install --no-build-isolation torch-scatter"]


def test_a_page_of_somebodys_may_have_it_ready_made() -> None:
    text = "pip install torch==2.7.1\npip install detectron2 -f https://dl.example/wheels/cu100/index.html\n"
    assert "isolation" not in {rule for _, rule in ids(text, "a.sh")}


@pytest.mark.parametrize(
    ("name", "text", "asks"),
    [
        ("a.ps1", "$all = @()\nforeach ($one in $names) { $all += $one }\npip install $all\n", "what `$all` is"),
        ("requirements.txt", "torch==2.8.0+cu128\n", "whether the command that reads this list names"),
    ],
)
def test_what_is_installed_and_not_known_is_asked(name: str, text: str, asks: str) -> None:
    found = review_script(read(text, name=name), question_from_options(("RTX 4090",)))
    assert not found.answered and not found.refused and found.recognised
    assert any(asks in each for each in found.questions)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('bash -c "pip install torch==2.0.1"\n', True),
        ("sh -lc 'cd /x && pip install torch==2.0.1'\n", True),
        ('A=\'bash -c "$A"\'\nbash -c "$A"\n', False),
    ],
    ids=["plain", "login", "itself"],
)
def test_what_is_handed_to_a_shell_is_read(text: str, refused: bool) -> None:
    assert review_script(read(text, name="a.sh"), question_from_options(("RTX 5090",))).refused is refused


def test_two_demands_are_pips_matter_and_told_at_the_second() -> None:
    assert ids("torch==2.7.1\nnumpy\ntorch>=2.0\n", "requirements.txt") >= {(3, "requirement-twice")}
    conda = "name: x\ndependencies:\n  - cached-property=1.5\n  - cached_property=1.5\n  - pytorch=2.4.0\n"
    assert "requirement-twice" not in {rule for _, rule in ids(conda, "environment.yml")}


def test_the_numpy_of_an_image_stays() -> None:
    text = "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime\nRUN pip install numpy pandas\n"
    assert "numpy-two" not in {rule for _, rule in ids(text, "Dockerfile")}


CUDA_118 = "https://download.pytorch.org/whl/cu118"


@pytest.mark.parametrize(
    ("rule", "line", "name", "text"),
    [
        ("local-other-index", 2, "requirements.txt", f"--extra-index-url {CUDA_118}\ntorch==2.1.0+cu121\n"),
        ("companion", 2, "a.sh", "conda install -y pytorch==1.8.0 torchvision==0.9.0\npip install torch==1.13.1\n"),
        ("torch-no-such-wheel", 1, "a.sh", "conda install -y pytorch==2.2.1 pytorch-cuda=12.8 -c pytorch -c nvidia\n"),
    ],
)
def test_what_was_never_made_together(rule: str, line: int, name: str, text: str) -> None:
    found = review_script(read(text, name=name), question_from_options(("RTX 3090",)))
    assert found.refused and (line, rule) in {(each.line, each.id) for each in found.remarks}


JOB = "jobs:\n  a:\n    runs-on: {}\n    steps:\n{}      - run: pip install torch==1.9.1\n"
RUNFILE = "      - run: sudo sh cuda_{}.1_455.32.00_linux.run --silent --toolkit\n"
BUILD = "      - run: TORCH_CUDA_ARCH_LIST=7.0 pip install --no-build-isolation flash-attn==2.0.0\n"


@pytest.mark.parametrize(
    ("runner", "steps", "expected"),
    [
        ("ubuntu-latest", RUNFILE.format("11.1"), "gcc-refused"),
        ("ubuntu-22.04", RUNFILE.format("11.1"), "gcc-refused"),
        ("ubuntu-22.04", RUNFILE.format("12.4"), None),
        ("ubuntu-latest", RUNFILE.format("12.4"), None),
        ("self-hosted", RUNFILE.format("11.1"), None),
        ("ubuntu-latest", "      - run: sudo apt-get install -y gcc-10 g++-10\n" + RUNFILE.format("11.1"), None),
        ("ubuntu-latest", "      - run: sudo apt-get install -y gcc-8\n", "gcc-not-there"),
        ("ubuntu-22.04", "      - run: sudo apt-get install -y gcc-13\n", None),
        (
            "ubuntu-latest",
            "      - run: sudo add-apt-repository ppa:x/y && apt install gcc-8\n",
            None,
        ),
        ("ubuntu-latest\n    container: ubuntu:20.04", "      - run: apt install -y gcc-8\n", None),
        ("ubuntu-latest\n    container: ubuntu:22.04", "      - run: apt install -y gcc-8\n", "gcc-not-there"),
    ],
)
def test_the_gcc_of_the_system(runner: str, steps: str, expected: str | None) -> None:
    found = {rule for _, rule in ids(JOB.format(runner, steps) + BUILD, ".github/workflows/a.yml")}
    assert found & {"gcc-refused", "gcc-not-there"} == ({expected} if expected else set())


SYNCED = f"uv sync\nuv pip install torch==2.6.0 --index-url {CUDA_118.replace('118', '124')}\n"


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        (SYNCED + "uv run python -m pytest\n", "uv-run-syncs", 3),
        (SYNCED + "uv run --no-sync pytest\n", "uv-run-syncs", None),
        (SYNCED + "export UV_NO_SYNC=1\nuv run pytest\n", "uv-run-syncs", None),
        ("pip install torch==2.1.0\npip install scikit-learn\npip install pandas\n", "numpy-two", 2),
        ("pip install torch==2.1.0 'numpy<2'\npip install pandas\n", "numpy-two", None),
        ("conda install -y pytorch==2.0.1 pytorch-cuda=11.7 -c pytorch -c nvidia\n", "mkl-not-held", 1),
        ("conda install -y pytorch==2.0.1 pytorch-cuda=11.7 mkl=2023 -c pytorch -c nvidia\n", "mkl-not-held", None),
    ],
)
def test_what_comes_in_without_being_named(text: str, rule: str, line: int | None) -> None:
    found = review_script(read(text, name="a.sh"), question_from_options(("A100",)))
    assert [each.line for each in found.remarks if each.id == rule] == ([line] if line else [])
