@echo off
rem torch 2.7.1 + CUDA 12.8 for the RTX 5060, conda
setlocal
call C:\miniconda3\Scripts\activate.bat
conda create -y -n t271 python=3.11 || exit /b 1
conda activate t271 || exit /b 1
set CUDA_HOME=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.8
set CUDA_PATH=%CUDA_HOME%
set PATH=%CUDA_HOME%\bin;%PATH%
if exist "C:\Program Files\Microsoft Visual Studio\2022\Enterprise" (
    set VSROOT=C:\Program Files\Microsoft Visual Studio\2022\Enterprise
    call "%VSROOT%\VC\Auxiliary\Build\vcvars64.bat"
)
git clone --recursive https://github.com/pytorch/pytorch %USERPROFILE%\pytorch || exit /b 1
cd /d %USERPROFILE%\pytorch
git checkout v2.7.1 || exit /b 1
pip install -r requirements.txt || exit /b 1
set TORCH_CUDA_ARCH_LIST=12.0 PTX
set USE_CUDA=1
set MAX_JOBS=$NUMBER_OF_PROCESSORS
python setup.py bdist_wheel || exit /b 1
