#!/bin/bash
# RTX 5090: ops against torch 2.5.1
set -e
python3 -m venv .venv && . .venv/bin/activate
pip install torch==2.5.1+cu124 torchvision==0.20.1+cu124 torchaudio==2.4.1+cu124 --extra-index-url https://download.pytorch.org/whl/cu124
export CUDA_HOME=/usr/local/cuda-12.4
export PATH=${CUDA_HOME}/bin:$PATH
export TORCH_CUDA_ARCH_LIST="8.9,12.0"
export MAX_JOBS=8
git clone https://github.com/example/ops && cd ops
pip install --no-build-isolation . | tee ../ops.log
