# PyTorch 2.8.0 wheel, RTX 5080, CUDA 12.9
$ErrorActionPreference = 'Stop'
$repo = 'E:\work\pytorch'

where cl
if ($LASTEXITCODE -ne 0) { Write-Error 'open the Developer PowerShell first' }

$env:CUDA_HOME = 'C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.9'
$env:CUDA_PATH = $env:CUDA_HOME
$env:PATH = "$env:CUDA_HOME\bin;$env:PATH"

. E:\work\venv\Scripts\Activate.ps1

Push-Location $repo
git checkout v2.8.0
pip install -r requirements.txt 'cmake<4'
if ($LASTEXITCODE -ne 0) { throw 'requirements' }

$env:USE_CUDA = '1'
$env:BUILD_TEST = '0'
$env:DISTUTILS_USE_SDK = '1'
$env:TORCH_CUDA_ARCH_LIST = '12.O'
set MAX_JOBS=10

python setup.py bdist_wheel
if ($LASTEXITCODE -ne 0) { throw 'build' }
Pop-Location
