@echo off
rem torch 2.6.0 wheel, RTX 2080 Ti, CUDA 12.6, VS 2022 Build Tools
setlocal
set "CUDA_PATH=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.6"
set "CUDA_HOME=%CUDA_PATH%"
set "PATH=%CUDA_PATH%\bin;%PATH%"
call "C:\Program Files (x86)\Microsoft Visual Studio\2022\BuildTools\VC\Auxiliary\Build\vcvarsall.bat" x86 || exit /b 1
set DISTUTILS_USE_SDK=1
call C:\envs\torch26\Scripts\activate.bat || exit /b 1
cd /d C:\src\pytorch || exit /b 1
git checkout v2.6.0 || exit /b 1
git submodule sync || exit /b 1
git submodule update --init --recursive || exit /b 1
python -m pip install -r requirements.txt "cmake<4" || exit /b 1
set USE_CUDA=1
set BUILD_TEST=0
set USE_CUDNN =1
set MAX_JOBS=8
set TORCH_CUDA_ARCH_LIST="7.5"
python setup.py bdist_wheel > build.log
if %errorlevel% equ 0 (
    for %%W in (dist\*.whl) do set WHEEL=%%W
    echo built %WHEEL%
)
endlocal
