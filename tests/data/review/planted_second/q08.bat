@echo off
:: xformers 0.0.29 for RTX 3090 with torch 2.5.1 / cu124 -- everything is right here
setlocal
set "CUDA_HOME=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.4"
set "PATH=%CUDA_HOME%\bin;%PATH%"
call "C:\Program Files\Microsoft Visual Studio\2022\Professional\VC\Auxiliary\Build\vcvars64.bat" -vcvars_ver=14.39
if errorlevel 1 goto :error
call "%~dp0.venv\Scripts\activate.bat"
if errorlevel 1 goto :error
python -m pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu124
if errorlevel 1 goto :error
python -m pip install ninja wheel "setuptools<75"
if errorlevel 1 goto :error
set "DISTUTILS_USE_SDK=1"
set "TORCH_CUDA_ARCH_LIST=8.6"
set "MAX_JOBS=4"
python -m pip install --no-build-isolation -v "git+https://github.com/facebookresearch/xformers.git@v0.0.29#egg=xformers"
if errorlevel 1 goto :error
echo ok
exit /b 0
:error
echo failed with %errorlevel%
exit /b 1
