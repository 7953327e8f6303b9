"""Where things lie on this computer, and how large they are. Follows `standalone_libraries`; needs Python alone."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

KITS = "KitsRoot10"


def expanded(path: str) -> Path:
    """`RK_CUDA/bin/nvcc.exe`: the first part is a place of the script, or the folder of the Windows SDKs."""
    first, *rest = path.split("/")
    top = kits() if first == KITS else Path(os.environ.get(first, ""))
    found = sorted(top.glob("/".join(rest))) if "*" in path else []
    return found[-1] if found else top.joinpath(*rest)


def kits() -> Path:
    """The folder of the Windows SDKs: the registry says it, for an SDK may lie on another drive."""
    try:
        winreg: Any = importlib.import_module("winreg")
    except ImportError:
        winreg = None
    for part in ("WOW6432Node\\Microsoft", "Microsoft") if winreg else ():
        key = f"SOFTWARE\\{part}\\Windows Kits\\Installed Roots"
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key, 0, winreg.KEY_READ | winreg.KEY_WOW64_64KEY) as opened:
                named = winreg.QueryValueEx(opened, KITS)[0]
        except OSError:
            continue
        if named:
            return Path(named)
    return Path(os.environ.get("PROGRAMFILES(X86)", "C:\\Program Files (x86)"), "Windows Kits", "10")


def beside_python(program: str) -> str:
    """Where the build will find it: the folder of its Python comes first on PATH."""
    own = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(program, path=own) or ""


def elsewhere(need: dict[str, Any]) -> list[str]:
    """Where else such a thing lies on this computer: the place that a person has to put into the script's variable."""
    if need.get("vswhere"):
        program = Path(os.environ.get("PROGRAMFILES(X86)", ""), "Microsoft Visual Studio", "Installer", "vswhere.exe")
        words = [str(program), "-all", "-products", "*", "-utf8", "-property", "installationPath"]
        if program.is_file():
            said = subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout.decode("utf-8", "replace")
            if said.strip():
                return said.splitlines()[:4]
    drive = os.environ.get("SYSTEMDRIVE", "C:") + os.sep
    found = [path for pattern in need.get("elsewhere", ()) for path in sorted(Path(drive).glob(pattern))]
    return [str(path.parents[need["up"]]) for path in found][:4]


def version_of(path: str, wanted: str) -> str:
    try:
        said = subprocess.run(
            [path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    text = said.stdout.decode("utf-8", "replace")
    numbers = re.findall(r"release (\d+\.\d+)", text) or re.findall(r"(\d+(?:\.\d+)+)", text)
    return ".".join(numbers[0].split(".")[: wanted.count(".") + 1]) if numbers else ""


def size_of(top: Path) -> int:
    total = 0
    for folder, _, names_in in os.walk(str(top)):
        for name in names_in:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - thousands of files
            except OSError:
                continue
    return total
