#!/bin/bash
# torch 2.0.1 from source for two GTX 1080 cards
# Ubuntu 24.04, gcc 13, 32 GB RAM
set -eo pipefail

sudo apt-get install -y gcc-13 g++-13 git python3.11-dev python3.11-venv
export CC=/usr/bin/gcc-13
export CXX=/usr/bin/g++-13
export CUDA_HOME=/usr/local/cuda-11.8
export PATH="$CUDA_HOME/bin:$PATH"

python3.11 -m venv ~/torch201
. ~/torch201/bin/activate

git clone https://github.com/pytorch/pytorch ~/pytorch
cd ~/pytorch
git checkout v2.0.1

pip install "cmake>=4" ninja "setuptools<66" pyyaml typing_extensions
pip install "numpy==2.1.0"

export USE_CUDA=1 USE_CUDNN=0 USE_NCCL=0 BUILD_TEST=0
export MAX_JOBS=6
export TORCH_CUDA_ARCH_LIST="sm_61"
python setup.py bdist_wheel
