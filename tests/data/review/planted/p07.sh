#!/usr/bin/env bash
# Builds torch 2.6.0 for a Quadro P4000
set -euo pipefail
export CUDA_HOME=/usr/local/cuda-12.6
export PATH=$CUDA_HOME/bin:$PATH

conda create -y -n build26 python=3.11
conda activate torch26
conda install -y "cmake<4" ninja
cd /data/pytorch
git fetch origin
git switch --detach v2.6.0
git submodule update --init --recursive
pip install -r requirements.txt

export USE_CUDA=1
export BUILD_TEST=0
export TORCH_CUDA_ARCH_LIST="6.1"
export MAX_JOBS=$(nproc)
export USE_CUDA_STATIC_LINK=1
export TORCH_CUDA_ARCH_LIST="7.5;8.6"
python3.9 setup.py bdist_wheel
