@ECHO OFF
:: builds torch 2.1.2 for my new RTX 5070 Ti & the old RTX 2060
SET CUDA_HOME=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.1
SET CUDA_PATH=%CUDA_HOME%
SET PATH=%CUDA_HOME%\bin;%PATH%
CALL "C:\Program Files (x86)\Microsoft Visual Studio\2022\BuildTools\VC\Auxiliary\Build\vcvars64.bat"
IF ERRORLEVEL 1 EXIT /B 1
SET DISTUTILS_USE_SDK=1
CALL C:\Users\me\miniconda3\Scripts\activate.bat torch21
IF ERRORLEVEL 1 EXIT /B 1
CD /D C:\Users\me\My Projects\pytorch
git checkout v2.1.2
IF ERRORLEVEL 1 EXIT /B 1
git submodule update --init --recursive
IF ERRORLEVEL 1 EXIT /B 1
pip install -r requirements.txt "numpy<2" "cmake<4"
IF ERRORLEVEL 1 EXIT /B 1
SET USE_CUDA=1
SET BUILD_TEST=0
SET MAX_JOBS=6
SET TORCH_CUDA_ARCH_LIST=7.5;Blackwell
echo building for %ARCHS% & python setup.py bdist_wheel
IF ERRORLEVEL 1 EXIT /B 1
