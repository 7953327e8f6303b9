#!/usr/bin/env bash
# V100 + T4: torch 2.9.0 against CUDA 12.9; right
set -euo pipefail
readonly SRC=${1:-$HOME/pytorch}
export CUDA_HOME=/usr/local/cuda-12.9
export PATH="$CUDA_HOME/bin:$PATH" LD_LIBRARY_PATH="$CUDA_HOME/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
eval "$(conda shell.bash hook)"
conda activate torch29
pushd "$SRC" > /dev/null
git fetch --tags --force
git checkout --detach v2.9.0
git submodule update --init --recursive
python -m pip install -r requirements.txt
env USE_CUDA=1 USE_NCCL=0 BUILD_TEST=0 MAX_JOBS="${JOBS:-6}" TORCH_CUDA_ARCH_LIST="7.0;7.5" python setup.py bdist_wheel
popd > /dev/null
