@echo off
REM Maxwell (GTX 960) wheel of torch 2.4.1 with CUDA 12.1
setlocal EnableDelayedExpansion

call "C:\Program Files\Microsoft Visual Studio\2022\BuildTools\VC\Auxiliary\Build\vcvarsall.bat" x64 -vcvars_ver=14.29 || goto :fail
set DISTUTILS_USE_SDK=1

set "CUDA_PATH=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.1"
set "CUDA_HOME=%CUDA_PATH%"
set "PATH=%CUDA_PATH%\bin;%PATH%"

if "%1"=="clean" (
    set BUILDDIR=D:\t\build-clean
    rmdir /s /q %BUILDDIR%
    mkdir %BUILDDIR%
)

call D:\venvs\torch241\Scripts\activate.bat || goto :fail
cd /d D:\t\pytorch || goto :fail
git checkout v2.4.1 || goto :fail
git submodule sync || goto :fail
git submodule update --init --recursive || goto :fail
python -m pip install -r requirements.txt "numpy<2" "cmake<4" || goto :fail

set USE_CUDA=0
set BUILD_TEST=0
set MAX_JOBS=64
set TORCH_CUDA_ARCH_LIST=5.2 PTX
python setup.py bdist_wheel || goto :fail
echo done
exit /b 0

:fail
echo FAILED
exit /b 1
