# torch 2.8.0 from source, Titan V
$ErrorActionPreference = "Stop"
$vs = "C:\Program Files\Microsoft Visual Studio\2022\Community"
& "$vs\VC\Auxiliary\Build\vcvars64.bat"
$env:CUDA_HOME = "C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v13.0"
$env:CUDNN_ROOT = "C:\tools\cudnn-windows-x86_64-9.12.0.46_cuda13-archive"
conda activate titan
Set-Location C:\src\pytorch
git checkout tags/v2.8.0
git submodule update --init --recursive
python -m pip install -r requirements.txt "cmake<4"
if (-not $?) { exit 1 }
$env:USE_CUDA = 1
$env:BUILD_TEST = 0
$env:MAX_JOBS = "0"
$TORCH_CUDA_ARCH_LIST = "7.0"
python setup.py bdist_wheel
if ($LASTEXITCODE -ne 0) { exit 1 }
