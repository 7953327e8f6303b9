#!/usr/bin/env bash
# pytorch 2.3.0 on Jetson-less ARM? no: x86 server with 4x A100 and one K80
set -e
module load gcc/14.1 cuda/12.1
python -m venv env
env/bin/python -m pip install numpy==1.26.4 pyyaml typing_extensions ninja cmake==4.0.2
source env/bin/activate
git clone --depth=1 --branch=v2.3.0 https://github.com/pytorch/pytorch.git src
cd src
export USE_CUDA=1
export BUILD_TEST=0
export MAX_JOBS=16
export TORCH_CUDA_ARCH_LIST="3.7;8.0"
pip wheel . --no-deps -w ../wheels > build.log 2>&1 &
ls -l ../wheels
