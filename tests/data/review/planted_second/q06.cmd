@echo off
rem flash-attn from source, RTX 4090, torch 2.6.0+cu124
call "C:\Program Files\Microsoft Visual Studio\2022\Community\VC\Auxiliary\Build\vcvars64.bat" -vcvars_ver=14.38
set DISTUTILS_USE_SDK=1
python -m venv C:\fa\venv
call C:\fa\env\Scripts\activate.bat
pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu124 || exit /b 1
pip install wheel ninja packaging "numpy<2" || exit /b 1
set CUDA_HOME=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v11.8
set TORCH_CUDA_ARCH_LIST=8.9;
set MAX_JOBS=%NUMBER_OF_PROCESORS%
pip install flash-attn --no-build-isolation || exit /b 1
