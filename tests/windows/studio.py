"""Stand-ins for Visual Studio that behave like the real one as far as Rekindle can see: folders and batch files.

The batch files are ASCII and find their own place by `%~dp0`, as Microsoft's do, so they work from any folder (and keep
it, because `shift` shifts `%0` as well).
"""

from __future__ import annotations

from pathlib import Path

# `=` separates arguments in a batch file, so `-vcvars_ver=14.29` arrives as two of them; the real one lives with that.
_VCVARSALL = r"""@echo off
set "__VSCMD_PREINIT_PATH=%PATH%"
set "__here=%~dp0"
set "arch=%~1"
set "asked="
:next
shift
if "%~1"=="" goto :set
if /i "%~1"=="-vcvars_ver" (
  set "asked=%~2"
  shift
)
goto :next
:set
if "%arch%"=="x64" goto :known
if "%arch%"=="x64_arm64" goto :known
echo [ERROR:vcvarsall.bat] Invalid argument found : %arch%
exit /b 1
:known
set "VSINSTALLDIR=%__here%..\..\..\"
set "VCINSTALLDIR=%__here%..\..\"
set "VCToolsVersion="
for /f "delims=" %%d in ('dir /b /ad /on "%__here%..\..\Tools\MSVC\%asked%*" 2^>nul') do set "VCToolsVersion=%%d"
if not defined VCToolsVersion goto :missing
@@EXTRA@@
set "VCToolsInstallDir=%__here%..\..\Tools\MSVC\%VCToolsVersion%\"
set "INCLUDE=%VCToolsInstallDir%include;%INCLUDE%"
set "LIB=%VCToolsInstallDir%lib\x64;%LIB%"
set "PATH=%VCToolsInstallDir%bin\Hostx64\x64;%PATH%"
set "VSCMD_ARG_HOST_ARCH=x64"
set "VSCMD_ARG_TGT_ARCH=x64"
if "%arch%"=="x64_arm64" set "VSCMD_ARG_TGT_ARCH=arm64"
set "VSCMD_VER=@@VERSION@@"
echo **********************************************************************
echo ** Visual Studio Developer Command Prompt v@@VERSION@@
echo **********************************************************************
exit /b 0
:missing
echo [ERROR:vcvars.bat] Toolset directory for version '%asked%' was not found.
echo [ERROR:VsDevCmd.bat] *** VsDevCmd.bat encountered errors. Environment may be incomplete and/or incorrect. ***
exit /b 1
"""


def make(root: Path, *toolsets: str, version: str = "16.11.34", extra: str = "") -> Path:
    """A Visual Studio in `root` with these toolsets side by side. `extra` are batch lines before it sets anything."""
    build = root / "VC" / "Auxiliary" / "Build"
    build.mkdir(parents=True)
    for toolset in toolsets:
        compiler = root / "VC" / "Tools" / "MSVC" / toolset / "bin" / "Hostx64" / "x64" / "cl.exe"
        compiler.parent.mkdir(parents=True)
        compiler.write_bytes(b"MZ")
    text = _VCVARSALL.replace("@@VERSION@@", version).replace("@@EXTRA@@", extra)
    (build / "vcvarsall.bat").write_bytes(text.replace("\n", "\r\n").encode("ascii"))
    return root


def kits(programs: Path) -> Path:
    """A Windows SDK below `programs`, the folder that `PROGRAMFILES(X86)` names."""
    header = programs / "Windows Kits" / "10" / "Include" / "10.0.22621.0" / "um" / "windows.h"
    header.parent.mkdir(parents=True)
    header.write_text("", encoding="utf-8")
    return programs
