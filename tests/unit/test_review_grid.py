"""Each grave fault in each form that can say it, and the same script with the fault mended: one reading for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.review.question import question_from_options
from rekindle.review.review import review

# The file, then what lies beside it. @T@: the release, @L@: the line, @C@: its CUDA.
_FORMS = r"""
=== heredoc.Dockerfile
FROM python:3.11
RUN <<EOF
set -e
pip install torch==@T@ --index-url @W@@L@
EOF
=== Dockerfile
ARG CU=@L@
ARG PT=@T@
FROM python:3.11-slim AS base
ARG CU
ARG PT
ENV PIP_EXTRA_INDEX_URL=@W@${CU}
RUN pip install "torch==${PT}+${CU}"
FROM base AS final
CMD python x.py
=== Dockerfile
FROM python:3.11
ENV PIP_INDEX_URL=@W@@L@
RUN pip install torch==@T@
=== pipconf.sh
#!/bin/sh
pip config set global.index-url @W@@L@
pip install torch==@T@
=== exportindex.sh
#!/bin/bash
export PIP_INDEX_URL=@W@@L@
pip install torch==@T@
=== uvbackend.sh
#!/bin/bash
export UV_TORCH_BACKEND=@L@
uv venv
uv pip install torch==@T@
=== uvdefault.sh
#!/bin/bash
export UV_DEFAULT_INDEX=@W@@L@
uv venv
uv pip install torch==@T@
=== echoreq.sh
#!/bin/bash
echo "torch==@T@" > req.txt
echo numpy >> req.txt
pip install --index-url @W@@L@ -r req.txt
=== loop.sh
#!/bin/bash
for p in torch==@T@ tqdm; do
  pip install "$p" --index-url @W@@L@
done
=== case.sh
#!/bin/bash
CUDA=@L@
case "$CUDA" in
  cpu) IDX=@W@cpu ;;
  @L@) IDX=@W@@L@ ;;
esac
pip install torch==@T@ --index-url $IDX
=== default.sh
#!/bin/bash
CU=${1:-@L@}
pip install torch==@T@ --index-url @W@${CU}
=== func.sh
#!/bin/bash
inst() { local v=$1 cu=$2; pip install "torch==$v" --index-url "@W@$cu"; }
inst @T@ @L@
=== eval.sh
#!/bin/bash
CMD="pip install torch==@T@ --index-url @W@@L@"
eval "$CMD"
=== bashlc.sh
#!/bin/bash
bash -lc "pip install torch==@T@ --index-url @W@@L@"
=== dockerrun.sh
#!/bin/bash
docker run --gpus all --rm python:3.11 bash -c 'pip install torch==@T@ --index-url @W@@L@ && python x.py'
=== dockerexec.sh
#!/bin/bash
docker run -d --name t --gpus all python:3.11 sleep inf
docker exec t pip install torch==@T@ --index-url @W@@L@
=== ssh.sh
#!/bin/bash
ssh gpu01 "pip install torch==@T@ --index-url @W@@L@"
=== condarun.sh
#!/bin/bash
conda create -y -n x python=3.11
conda run -n x pip install torch==@T@ --index-url @W@@L@
=== sbatchwrap.sh
#!/bin/bash
sbatch --gres=gpu:1 --wrap "pip install torch==@T@ --index-url @W@@L@ && python t.py"
=== pushd.sh
#!/bin/bash
set -e
pushd app
pip install -r requirements.txt
popd
--- app/requirements.txt
--index-url @W@@L@
torch==@T@
=== ansible.yml
- hosts: gpu
  tasks:
    - name: torch
      ansible.builtin.pip:
        name: torch==@T@
        extra_args: --index-url @W@@L@
=== k8s.yaml
apiVersion: batch/v1
kind: Job
metadata:
  name: t
spec:
  template:
    spec:
      containers:
        - name: t
          image: python:3.11
          command: ["bash", "-c"]
          args:
            - pip install torch==@T@ --index-url @W@@L@ && python t.py
          resources:
            limits:
              nvidia.com/gpu: 1
=== cloudinit.yml
#cloud-config
packages: [python3-pip]
runcmd:
  - pip install torch==@T@ --index-url @W@@L@
=== Taskfile.yml
version: '3'
vars:
  T: '@T@'
tasks:
  install:
    cmds:
      - pip install torch=={{.T}} --index-url @W@@L@
=== action.yml
name: x
runs:
  using: composite
  steps:
    - shell: bash
      run: pip install torch==@T@ --index-url @W@@L@
=== .github/workflows/a.yml
on: push
env:
  TORCH: '@T@'
jobs:
  a:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        include:
          - cu: @L@
            py: '3.11'
    steps:
      - uses: actions/setup-python@v5
        with:
          python-version: ${{ matrix.py }}
      - run: pip install torch==${{ env.TORCH }} --index-url @W@${{ matrix.cu }}
=== .github/workflows/a.yml
on: push
jobs:
  a:
    runs-on: [self-hosted, gpu]
    steps:
      - run: echo 'IDX=@W@@L@' >> $GITHUB_ENV
      - run: pip install torch==@T@ --index-url $IDX
=== bitbucket-pipelines.yml
image: python:3.11
pipelines:
  default:
    - step:
        script:
          - pip install torch==@T@ --index-url @W@@L@
=== compose.yaml
services:
  a:
    gpus: all
    build:
      context: .
      dockerfile_inline: |
        FROM python:3.11
        RUN pip install torch==@T@ --index-url @W@@L@
=== docker-compose.yml
services:
  a:
    gpus: all
    build:
      context: ./docker
      dockerfile: gpu.Dockerfile
      target: final
      args:
        - CU=@L@
--- docker/gpu.Dockerfile
FROM python:3.11 AS final
ARG CU=cpu
RUN pip install torch==@T@ --index-url @W@${CU}
=== a.ps1
param([string]$Torch = '@T@', [string]$Cu = '@L@')
function Install-Torch {
  & .\venv\Scripts\python.exe -m pip install "torch==$Torch" --index-url "@W@$Cu"
}
py -3.11 -m venv venv
Install-Torch
=== c.ps1
$cmd = "pip install torch==@T@ --index-url @W@@L@"
Invoke-Expression $cmd
=== d.ps1
Start-Process -FilePath python -ArgumentList '-m','pip','install','torch==@T@','--index-url','@W@@L@' -Wait
=== e.ps1
$cuda = '@L@'
switch ($cuda) {
  'cpu' { $idx = '@W@cpu' }
  '@L@' { $idx = '@W@@L@' }
}
pip install torch==@T@ --index-url $idx
=== f.ps1
$Env:PIP_INDEX_URL = '@W@@L@'
python -m pip install torch==@T@
=== a.bat
@echo off
set CU=@L@
call :inst torch==@T@
goto :eof
:inst
pip install %~1 --index-url @W@%CU%
exit /b
=== b.bat
@echo off
setlocal enabledelayedexpansion
set P=torch==@T@
for %%p in (!P! tqdm) do pip install %%p --index-url @W@@L@
=== c.bat
@echo off
set CUDA=@L@
if "%CUDA%"=="@L@" (
  pip install torch==@T@ --index-url @W@@L@
) else (
  pip install torch==@T@ --index-url @W@cpu
)
=== webui-user.bat
@echo off
set TORCH_COMMAND=pip install torch==@T@ --index-url @W@@L@
call webui.bat
=== pyproject.toml
[project]
name='x'
version='1'
[tool.hatch.envs.default]
dependencies=['torch==@T@']
[tool.hatch.envs.default.env-vars]
PIP_INDEX_URL='@W@@L@'
=== pyproject.toml
[project]
name='x'
version='1'
requires-python='==3.11.*'
dependencies=['torch==@T@']
[[tool.pdm.source]]
name='torch'
url='@W@@L@'
include_packages=['torch']
=== pyproject.toml
[project]
name='x'
version='1'
requires-python='==3.11.*'
dependencies=[]
[project.optional-dependencies]
gpu=['torch==@T@']
[tool.uv.sources]
torch=[{index='g', extra='gpu'}]
[[tool.uv.index]]
name='g'
url='@W@@L@'
explicit=true
=== pyproject.toml
[project]
name='x'
version='1'
requires-python='==3.11.*'
dependencies=['numpy']
[dependency-groups]
dev=['torch==@T@']
[tool.uv.sources]
torch={index='g'}
[[tool.uv.index]]
name='g'
url='@W@@L@'
=== pyproject.toml
[project]
name='x'
version='1'
requires-python='==3.11.*'
dependencies=['torch==@T@+@L@']
[[tool.uv.index]]
url='@W@@L@'
=== pyproject.toml
[project]
name='x'
version='1'
requires-python='>=3.10,<3.13'
dependencies=['torch==@T@']
[tool.uv.sources]
torch=[{index='c',marker="sys_platform == 'darwin'"},{index='g',marker="sys_platform != 'darwin'"}]
[[tool.uv.index]]
name='c'
url='@W@cpu'
explicit=true
[[tool.uv.index]]
name='g'
url='@W@@L@'
explicit=true
=== pixi.toml
[workspace]
name='x'
channels=['conda-forge']
platforms=['linux-64']
[feature.gpu.dependencies]
python='3.11.*'
[feature.gpu.pypi-dependencies]
torch={version='==@T@', index='@W@@L@'}
[environments]
default=['gpu']
=== pyproject.toml
[project]
name='x'
version='1'
requires-python='==3.11.*'
[tool.pixi.workspace]
channels=['conda-forge']
platforms=['linux-64']
[tool.pixi.pypi-options]
extra-index-urls=['@W@@L@']
[tool.pixi.pypi-dependencies]
torch='==@T@+@L@'
=== reqs.in
--extra-index-url @W@@L@
torch==@T@+@L@  # gpu
=== requirements.txt
-r base.txt
tqdm
--- base.txt
--index-url @W@@L@
torch==@T@
=== requirements.txt
torch @ @W@@L@/torch-@T@%2B@L@-cp311-cp311-linux_x86_64.whl
=== environment.yaml
name: x
channels: [conda-forge]
dependencies:
- python=3.11
- pip:
  - -r requirements.txt
--- requirements.txt
--index-url @W@@L@
torch==@T@
=== readme2.md
# x
1. Install torch:
   ```
   pip3 install torch==@T@ --index-url @W@@L@
   ```
2. Run `python t.py`
=== readme5.md
Install with `pip install torch==@T@ --index-url @W@@L@` and go.
=== readme6.md
<details><summary>Linux</summary>

```console
$ python -m venv v
$ source v/bin/activate
(v) $ pip install torch==@T@ \
    --index-url @W@@L@
Collecting torch
```
</details>
=== devcontainer.json
{
  "image": "mcr.microsoft.com/devcontainers/python:3.11",
  "postCreateCommand": "pip install torch==@T@ --index-url @W@@L@",
  "runArgs": ["--gpus", "all"]
}
=== apt.def
Bootstrap: docker
From: python:3.11

%arguments
  T=@T@
%post
  pip install torch=={{ T }} --index-url @W@@L@
=== skypilot.yaml
resources:
  accelerators: A100:1
setup: |
  pip install torch==@T@ --index-url @W@@L@
run: |
  python t.py
=== colab2.ipynb
{"cells":[{"cell_type":"code","source":[
"v, cu = \"@T@\", \"@L@\"\n","url = f\"@W@{cu}\"\n","!pip install -q torch=={v} --index-url {url}\n"],"outputs":[]}]}
=== sub2.py
import subprocess, sys
def run(c):
    subprocess.run(c, shell=True, check=True)
run('pip install torch==@T@ --index-url @W@@L@')
=== sub3.py
import subprocess, sys
PKGS = ['torch==@T@']
INDEX = '@W@@L@'
for p in PKGS:
    subprocess.check_call([sys.executable, '-m', 'pip', 'install', p, '--index-url', INDEX])
=== sub4.py
import sys
from subprocess import check_call
def install(name, index=None):
    cmd = [sys.executable, '-m', 'pip', 'install', name]
    if index:
        cmd += ['--index-url', index]
    check_call(cmd)
if __name__ == '__main__':
    install('torch==@T@', index='@W@@L@')
=== noxfile.py
import nox
CU='@L@'
@nox.session(python=['3.11'], venv_backend='uv')
def t(session):
    session.install('torch==@T@', '--index-url', f'@W@{CU}')
    session.run('pytest')
=== setup.cfg
[metadata]
name=x
[options.extras_require]
gpu =
    torch @ @W@@L@/torch-@T@%2B@L@-cp311-cp311-linux_x86_64.whl
=== tox.ini
[tox]
envlist=py311
[testenv]
commands_pre = pip install torch==@T@ --index-url @W@@L@
commands = pytest
=== .woodpecker.yml
steps:
  - name: a
    image: python:3.11
    commands:
      - pip install torch==@T@ --index-url @W@@L@
=== condaenv.sh
#!/bin/bash
conda env create -f environment.yml
--- environment.yml
name: x
dependencies:
- python=3.11
- pip:
  - --index-url @W@@L@
  - torch==@T@
=== source.sh
#!/bin/bash
source versions.env
pip install torch==$TORCH --index-url @W@$CU
--- versions.env
TORCH=@T@
CU=@L@
=== source2.sh
#!/bin/bash
. ./lib.sh
install_torch
--- lib.sh
install_torch() { pip install torch==@T@ --index-url @W@@L@; }
=== uvsync.sh
#!/bin/bash
uv sync --frozen
--- pyproject.toml
[project]
name='x'
version='1'
requires-python='==3.11.*'
dependencies=['torch==@T@']
[tool.uv.sources]
torch={index='g'}
[[tool.uv.index]]
name='g'
url='@W@@L@'
=== test.sh
#!/bin/bash
if command -v nvidia-smi >/dev/null; then
  IDX=@W@@L@
else
  IDX=@W@cpu
fi
pip install torch==@T@ --index-url $IDX
=== verstr.sh
#!/bin/bash
CUDA_VERSION=@C@
CU=cu${CUDA_VERSION//./}
pip install torch==@T@ --index-url @W@$CU
=== verstr2.sh
#!/bin/bash
CUDA_VERSION=@C@
CU=cu$(echo $CUDA_VERSION | tr -d .)
pip install torch==@T@ --index-url @W@$CU
=== verstr3.ps1
$cuda='@C@'
$cu = 'cu' + $cuda.Replace('.','')
pip install torch==@T@ --index-url "@W@$cu"
=== verstr4.py
import subprocess
cuda='@C@'
cu='cu'+cuda.replace('.','')
subprocess.run(['pip','install','torch==@T@','--index-url','@W@'+cu])
=== Dockerfile
FROM python:3.11
ARG CUDA=@C@
RUN pip install torch==@T@ --index-url @W@cu$(echo ${CUDA} | sed 's/\.//')
"""
_CARDS = {
    "RTX 5090": (("2.5.1", "cu124"), ("2.7.1", "cu128")),
    "Tesla P40": (("2.9.1", "cu128"), ("2.9.1", "cu126")),
    "A100": (("2.7.1", "cu124"), ("2.6.0", "cu124")),  # there is no such wheel
}


def _verdict(path: Path, card: str, **told: str) -> str:
    [answer] = review([path], question_from_options((card,), **told)).scripts  # type: ignore[arg-type]
    return "refused" if answer.refused else "accepted" if answer.answered else "open"


def _laid(folder: Path, files: str, **values: str) -> Path:
    """The first file of a form, with those beside it."""
    for name, value in {"W": "https://download.pytorch.org/whl/", **values}.items():
        files = files.replace(f"@{name}@", value)
    main: Path | None = None
    for part in files.split("\n--- "):
        name, _, text = part.partition("\n")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8", newline="\n")
        main = main or path
    assert main is not None
    return main


@pytest.mark.parametrize(
    "form", _FORMS.strip().removeprefix("=== ").split("\n=== "), ids=lambda form: form.split("\n")[0]
)
def test_every_form_says_which_torch(tmp_path: Path, form: str) -> None:
    found = {}
    for card, pairs in _CARDS.items():
        for torch, line in pairs:
            path = _laid(tmp_path / f"{card}-{torch}-{line}", form, T=torch, L=line, C=f"{line[2:4]}.{line[4:]}")
            found[card, torch, line] = _verdict(path, card)
    expected = {
        (card, *pins): word
        for card, each in _CARDS.items()
        for pins, word in zip(each, ("refused", "accepted"), strict=True)
    }
    assert found == expected


def test_a_list_that_sed_changes_is_not_known(tmp_path: Path) -> None:
    files = "a.sh\nsed -i 's/^torch.*/torch==2.5.1/' req.txt\npip install -r req.txt\n--- req.txt\ntorch\n"
    assert _verdict(_laid(tmp_path, files), "RTX 5090") == "open"


@pytest.mark.parametrize("from_outside", ["steps.s.outputs.v", "inputs.torch", "github.event.inputs.torch"])
def test_a_release_from_outside_is_not_the_newest(tmp_path: Path, from_outside: str) -> None:
    steps = f"[{{run: 'pip install torch==${{{{ {from_outside} }}}} --index-url @W@cu128'}}]"
    files = f"a.yml\non: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps: {steps}\n"
    assert _verdict(_laid(tmp_path, files), "RTX 5090") == "open"
