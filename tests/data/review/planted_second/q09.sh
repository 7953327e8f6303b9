#!/bin/bash
# RTX 4060 Ti and GTX 1080; torch 2.7.1 from source; everything is right
set -euo pipefail
: "${SRC:=$HOME/pytorch}"
export CUDA_HOME=/usr/local/cuda-12.6
export PATH=$CUDA_HOME/bin:$PATH
python3.11 -m venv "$HOME/t271"
source "$HOME/t271/bin/activate"
[ -d "$SRC" ] || git clone https://github.com/pytorch/pytorch "$SRC"
cd "$SRC"
git fetch --tags
git checkout v2.7.1
git submodule sync
git submodule update --init --recursive
pip install -r requirements.txt
export USE_CUDA=1 USE_NCCL=0 BUILD_TEST=0 MAX_JOBS=6
export TORCH_CUDA_ARCH_LIST="6.1;8.9"
python setup.py bdist_wheel |& tee build.log
sha256sum dist/*.whl
