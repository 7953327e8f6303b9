#!/bin/bash
# K80 box: torch 1.12.1 with CUDA 11.4
module load cuda/11.4 gcc/12.2
source /opt/conda/etc/profile.d/conda.sh
conda activate k80
conda install -y cmake ninja pyyaml numpy=1.22
cd $HOME/pytorch
git checkout v1.12.1
git submodule sync
git submodule update --init --recursive
export TORCH_CUDA_ARCH_LIST="3.7"
export USE_CUDA=ON
export USE_CUDNN=ON
export CUDNN_ROOT=$HOME/cudnn-linux-x86_64-8.8.1.3_cuda11-archive
export MAX_JOBS=8
python setup.py install 2>&1 | tee install.log
python -c "import torch; print(torch.cuda.get_arch_list())"
