# torch 2.4.0 with CUDA 12.4 for an RTX 3070 laptop
$ErrorActionPreference = 'Stop'
Import-Module "C:\Program Files\Microsoft Visual Studio\2022\Community\Common7\Tools\Microsoft.VisualStudio.DevShell.dll"
Enter-VsDevShell -VsInstallPath "C:\Program Files\Microsoft Visual Studio\2022\Community" -SkipAutomaticLocation -DevCmdArguments "-arch=x64"
$env:CUDA_HOME = "%ProgramFiles%\NVIDIA GPU Computing Toolkit\CUDA\v12.4"
$env:DISTUTILS_USE_SDK = 1
& D:\venv\Scripts\Activate.ps1
Set-Location D:\pytorch
git checkout v2.4.0
if ($LASTEXITCODE) { exit 1 }
git submodule update --init --recursive
if ($LASTEXITCODE) { exit 1 }
pip install -r requirements.txt
pip install numpy>=2.0
if ($LASTEXITCODE) { exit 1 }
$env:USE_CUDA = 1
$env:BUILD_TEST = 0
$env:MAX_JOBS = 6
$env:TORCH_CUDA_ARCH_LIST = "sm_86"
python setup.py bdist_wheel
if ($LASTEXITCODE) { exit 1 }
