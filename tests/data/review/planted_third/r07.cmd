@echo off
rem torch 1.13.1 for a GTX 780 Ti (3.5), CUDA 11.6, VS 2019
set CUDNN_PATH=C:\cudnn\cudnn-windows-x86_64-8.9.2.26_cuda11-archive
set CUDNN_INCLUDE_DIR=%CUDNN_PATH%\include
set CUDNN_LIBRARY=%CUDNN_PATH%\lib\x64
call "C:\Program Files (x86)\Microsoft Visual Studio\2019\Professional\VC\Auxiliary\Build\vcvarsall.bat" amd64
py -3.11 -m venv C:\t\env
C:\t\env\Scripts\activate
cd C:\t\pytorch
git checkout v1.13.1
pip install -r requirements.txt cmake
set USE_CUDA=1
set USE_FLASH_ATTN=0
set CUDA_HOME=C:\CUDA\v11.6 & set MAX_JOBS=4
set TORCH_CUDA_ARCH_LIST=3,5
python setup.py bdist_wheel
