#!/bin/sh
# torch 1.10.2 for a Tesla K40
set -e
export CUDA_HOME=/usr/local/cuda-11.3
export CUDNN_ROOT=/opt/cudnn-linux-x86_64-8.9.4.25_cuda11-archive
export CUDNN_LIBRARY=$CUDNN_ROOT/lib
export CUDNN_INCLUDE_DIR=$CUDNN_ROOT/include
export CC=gcc-9 CXX=g++-9

virtualenv -p python3.8 /opt/py38
/opt/py38/bin/pip install numpy==1.21.6 pyyaml typing_extensions "setuptools<59" "cmake<4" ninja wheel

git clone -b v1.10.2 --recursive https://github.com/pytorch/pytorch.git
cd pytorch
USE_CUDA=1 USE_CUDNN=1 BUILD_TEST=0 MAX_JOBS=8 TORCH_CUDA_ARCH_LIST="3.5,3.7" python3 setup.py bdist_wheel
cp dist/*.whl /opt/wheels/
