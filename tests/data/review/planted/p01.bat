@echo off
rem PyTorch 2.7.1 for an RTX 5090, CUDA 12.8, Visual Studio 2022, Python 3.12
setlocal

set CUDA_PATH=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.8
set CUDA_HOME=%CUDA_PATH%
set PATH=%CUDA_PATH%\bin;%PATH%

conda activate torchbuild
if errorlevel 1 exit /b 1

cd /d D:\src
git clone --branch v2.7.1 --recursive https://github.com/pytorch/pytorch
if errorlevel 1 exit /b 1
cd pytorch

pip install -r requirements.txt
if errorlevel 1 exit /b 1
pip install setuptools<=75.8.2 wheel
if errorlevel 1 exit /b 1

set USE_CUDA=1
set BUILD_TEST=0
set MAX_JOBS=8
set TORCH_CUDA_ARCH_LIST=l2.0
set CMAKE_PREFIX_PATH=%CONDA_PREFX%\Library

python setup.py bdist_wheel
if errorlevel 1 exit /b 1
dir dist
