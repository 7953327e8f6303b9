#!/bin/bash
# detectron2-like ops for an RTX 2080 Ti and an RTX 3090; torch 1.12.1+cu113
set -euo pipefail
source /opt/conda/etc/profile.d/conda.sh
conda create -y -n ops python=3.8
pip install torch==1.12.1+cu113 torchvision==0.14.1+cu113 --extra-index-url https://download.pytorch.org/whl/cu113
pip install numpy ninja "setuptools<60"
export CUDA_HOME=/usr/local/cuda-11.3
export CXX=g++-12 CC=gcc-12
export FORCE_CUDA=1
export MAX_JOBS=4
export TORCH_CUDA_ARCH_LIST="7.5, 8.6"
git clone https://github.com/example/ops.git
cd ops
git checkout v0.6
python setup.py install
