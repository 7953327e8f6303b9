# Wheel of torch 2.6.0 for a Quadro M4000 (5.2), Windows Server 2022
$ErrorActionPreference = "Stop"
$root = "E:\build"
$cudaRoot = "C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v13.0"
$env:CUDA_PATH = $cudaRoot
$env:PATH = "$cudaRoot\bin;" + $env:PATH
$vs = "C:\Program Files\Microsoft Visual Studio\2022\BuildTools\Common7\Tools\VsDevCmd.bat"
cmd.exe /c "call `"$vs`" -arch=x64"
python -m venv "$root\env"
& "$root\env\Scripts\python.exe" -m pip install --upgrade pip
if ($LASTEXITCODE -ne 0) { throw "pip" }
Push-Location "$root\pytorch"
git checkout v2.6.0
git submodule update --init --recursive
if ($LASTEXITCODE -ne 0) { throw "submodules" }
& "$root\env\Scripts\python.exe" -m pip install -r requirements.txt "cmake<4" "setuptools<76"
if ($LASTEXITCODE -ne 0) { throw "requirements" }
set USE_CUDA=1
$env:BUILD_TEST = 0
$env:MAX_JOBS = 8
$env:TORCH_CUDA_ARCH_LIST = "5.2;5.2+PTX,6.1"
python setup.py bdist_wheel
if ($LASTEXITCODE -ne 0) { throw "build" }
Pop-Location
