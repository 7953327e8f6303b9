#!/usr/bin/env bash
# torch 2.7.0 for a GTX 1660 (7.5) on Debian 12
set -euo pipefail
export CUDA_HOME=/usr/local/cuda-12.6
export PATH="$CUDA_HOME/bin:$PATH"
PYTHON=/opt/py312/bin/python3
git clone --depth 1 --branch v2.7.0 https://github.com/pytorch/pytorch /tmp/pytorch
cd /tmp/pytorch
git submodule update --init --recursive --depth 1
"$PYTHON" -m pip install -r requirements.txt
TORCH_CUDA_ARCH_LIST=7.5
export USE_CUDA=1 BUILD_TEST=0
export MAX_JOBS="four"
sudo "$PYTHON" setup.py bdist_wheel
ls dist
