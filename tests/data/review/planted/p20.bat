@echo off
setlocal
rem sageattention for RTX 3060 (torch 2.6.0+cu126) in the portable ComfyUI
set TORCH_CUDA_ARCH_LIST=Ampere86
set "CUDA_HOME=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.6"
if exist python_embeded (
    set PY=%~dp0python_embeded\python.exe
    %PY% -m pip install torch==2.6.0 torchvision==0.21.0 --index-url https://download.pytorch.org/whl/cu126
    if errorlevel 1 exit /b 1
)
cd SageAttention
export EXT_PARALLEL=4
"%PY%" -m pip install wheel ninja setuptools>=70
"%PY%" -m pip install . --no-build-isolation
if %errorlevel% neq 0 exit /b 1
