@echo off
rem xformers for a GTX 1070 against torch 2.3.1+cu121
setlocal
call "%ProgramFiles%\Microsoft Visual Studio\2022\Community\VC\Auxiliary\Build\vcvars64.bat" || exit /b 1
call C:\ai\venv\Scripts\activate.bat || exit /b 1
$env:CUDA_HOME = "C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.1"
set PATH=$CUDA_HOME\bin;%PATH%
pip install torch==2.3.1 torchvision==0.18.1 --index-url https://download.pytorch.org/whl/cu121 || exit /b 1
pip install ninja wheel "setuptools<70" "numpy<2" || exit /b 1
cd /d C:\ai\xformers || exit /b 1
git submodule update --init --recursive || exit /b 1
set DISTUTILS_USE_SDK=1
set TORCH_CUDA_ARCH_LIST=6,1
set MAX_JOBS=2
pip install --no-build-isolation . || exit /b 1
endlocal
