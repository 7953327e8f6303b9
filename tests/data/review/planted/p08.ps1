# gsplat-like extension for RTX 4070, torch 2.6.0 cu126
$ErrorActionPreference = "Stop"
python -m venv D:\gs\.venv
pip install torch==2.6.0 torchvision==0.20.0 --index-url https://download.pytorch.org/whl/cu126
pip install ninja "numpy<3" wheel "setuptools<80"

$env:TORCH_CUDA_ARCH_LIST = "Lovelace"
TORCH_NVCC_FLAGS=-Xfatbin
$env:MAX_JOBS = 6
Set-Location D:\gs\splat
pip install . -v
if ($LASTEXITCODE) { throw "failed" }
