@echo off
rem torch 2.7.1, RTX 5070, CUDA 12.3 is installed
setlocal
set "CUDA_PATH=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.3"
set "CUDA_HOME=%CUDA_PATH%"
call "C:\Program Files\Microsoft Visual Studio\2022\Community\VC\Auxiliary\Build\vcvars64.bat" || exit /b 1
call D:\venv\Scripts\activate || exit /b 1
cd /d D:\pytorch || exit /b 1
python -m pip install -r requirements.txt "cmake<4" || exit /b 1
set USE_CUDA=1
set BUILD_TEST=0
set DISTUTILS_USE_SDK=1
set TORCH_CUDA_ARCH_LIST=8.9,12.0
set CMAKE_ARGS=-DUSE_NCCL=OFF -DCMAKE_CUDA_FLAGS=-allow-unsupported-compiler & set MAX_JOBS=500
python setup.py bdist_wheel || exit /b 1
set TORCH_CUDA_ARCH_LIST=12.0
