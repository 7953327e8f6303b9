"""The DLLs that torch needs beside its own: found by reading what each file imports and names, and put into
`torch\\lib`.

torch looks into `torch\\lib`, the environment's `Library\\bin`, NvToolsExt and CUDA's own folder, and nowhere else:
cuDNN, Intel's OpenMP and zlibwapi lie elsewhere, and a wheel without them ends with WinError 126 in a new prompt.
Follows `standalone_steps` in the script; needs Python alone.
"""

from __future__ import annotations

import fnmatch
import importlib
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rekindle.build.script.standalone import PLAN, place, read, say, stop, write
from rekindle.formats.dll_names import DATA_SECTIONS, DllNames

LARGEST = 1 << 31
MOST_NAMES = 4096


def libraries(folder: str, *places: str) -> int:
    """Every DLL that something in `folder` needs is there afterwards, or is named with who needs it."""
    there = {path.name.lower(): path for path in sorted(Path(folder).glob("*.dll"))}
    wrong = [path.name for path in there.values() if owner_of(path.name).get("wrong")]
    if wrong:
        lines = [f"WRONG    {name} does not belong into {folder}: {owner_of(name)['where']}" for name in wrong]
        return stop(*lines, "delete it there and run the same script again")
    waiting = [*there.values(), *sorted(Path(folder).parent.glob("*.pyd"))]
    windows = Path(os.environ.get("SYSTEMROOT", "C:\\Windows"))
    where = [
        Path(each)
        for each in (*places, str(windows / "System32"), *os.environ.get("RK_PATH", "").split(os.pathsep))
        if each
    ]
    held = [{path.name.lower(): path for path in files_in(each)} for each in where]
    brought: list[str] = []
    missing: dict[str, str] = {}
    while waiting:
        user = waiting.pop(0)
        for wanted, sure in asked_by(user).items():
            owner = owner_of(wanted)
            if any(fnmatch.fnmatch(name, wanted) for name in there) or owner.get("never"):
                continue
            found = [path for each in held for name, path in each.items() if fnmatch.fnmatch(name, wanted)][:1]
            if not found and not sure:
                say(f"without  {wanted}, which {user.name} names and may load while running: {owner['where']}")
                continue
            if not found:
                missing.setdefault(wanted, user.name)
                continue
            if not owner and windows in found[0].parents:
                say(f"left     {wanted} to Windows, for {user.name}: it is in {found[0].parent}")
                continue
            target = Path(folder, found[0].name)
            shutil.copyfile(found[0], target)
            there[target.name.lower()] = target
            waiting.append(target)
            brought.append(f"{found[0].name} (from {found[0].parent}, for {user.name})")
    for line in brought:
        say(f"brought  {line}")
    if missing:
        lines = []
        for name, user_name in sorted(missing.items()):
            lines += [f"MISSING  {name}, which {user_name} loads", f"         {owner_of(name).get('where', '')}"]
        ours = [str(each) for each in where if windows not in (each, *each.parents)]
        return stop(*lines, "put it into one of these folders and run the same script again:", *ours[:6])
    write(place("libraries.txt"), "".join(f"{name}\n" for name in sorted(there)))
    say(f"{len(there)} DLLs in {folder}; all that they import is there, of Windows, of Python or of the driver")
    return 0


def files_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".dll")
    except OSError:
        return []


def asked_by(path: Path) -> dict[str, bool]:
    """What a file imports, is known to load while running (True), or names in its data and may load (False)."""
    name = path.name.lower()
    rows = [row for row in PLAN["loads"] if fnmatch.fnmatch(name, row["by"])]
    imports, names = imported(path)
    found = dict.fromkeys([*imports, *(wanted for row in rows if row["needed"] for wanted in row["loads"])], True)
    told = [pattern for row in rows for pattern in row["loads"]]
    for each in names:
        if owner_of(each).get("may") and not any(fnmatch.fnmatch(each, pattern) for pattern in told):
            found.setdefault(each, False)
    return found


def owner_of(name: str) -> dict[str, Any]:
    """Whose a DLL is, as far as the table of the plan knows."""
    name = name.lower()
    return next((row for row in PLAN["owners"] if any(fnmatch.fnmatch(name, each) for each in row["names"])), {})


def imported(path: Path) -> tuple[list[str], tuple[str, ...]]:
    """The DLLs of a Windows binary's import and delay-import tables, and those that its data names."""
    nothing: tuple[list[str], tuple[str, ...]] = ([], ())
    if path.stat().st_size > LARGEST:
        return nothing
    with path.open("rb") as stream:
        head = stream.read(4096)
        if head[:2] != b"MZ" or len(head) < 64:
            return nothing
        start = struct.unpack_from("<I", head, 60)[0]
        stream.seek(start)
        coff = stream.read(24)
        if coff[:4] != b"PE\0\0":
            return nothing
        count, size = struct.unpack_from("<H", coff, 6)[0], struct.unpack_from("<H", coff, 20)[0]
        optional = stream.read(size)
        headers = [stream.read(40) for _ in range(min(count, 96))]
        sections = [struct.unpack_from("<IIII", each, 8) for each in headers]
        wide = optional[:2] == b"\x0b\x02"
        tables = 112 if wide else 96

        def at(address: int, length: int) -> bytes:
            for virtual_size, virtual, raw_size, raw in sections:
                if virtual <= address < virtual + max(virtual_size, raw_size):
                    stream.seek(raw + address - virtual)
                    return stream.read(length)
            return b""

        found = []
        for index, row, name_at in ((1, 20, 12), (13, 32, 4)):
            if len(optional) < tables + 8 * index + 8:
                continue
            address = struct.unpack_from("<I", optional, tables + 8 * index)[0]
            for number in range(MOST_NAMES if address else 0):
                entry = at(address + row * number, row)
                if len(entry) < row or not any(entry):
                    break
                text = at(struct.unpack_from("<I", entry, name_at)[0], 260).split(b"\0")[0]
                found.append(text.decode("ascii", "replace").lower())
        data = tuple(name.encode() for name in DATA_SECTIONS)
        places = [struct.unpack_from("<II", each, 16) for each in headers if each.startswith(data)]
        ranges = [(raw, raw + size) for size, raw in places]
        names = DllNames(ranges)
        for begin, end in ranges:
            stream.seek(begin)
            while begin < end:
                piece = stream.read(min(1 << 20, end - begin))
                if not piece:
                    break
                names.look(begin, piece)
                begin += len(piece)
    return list(dict.fromkeys(found)), names.beside([*found, path.name])


def cudnn_of(root: str, version: str, parts: Sequence[str]) -> list[str]:
    """What is wrong with a cuDNN: its header's version, its import library, and each of its DLLs."""
    top = Path(root)
    said = [version for version in map(header_version, ("cudnn_version.h", "cudnn.h"), (top, top)) if version]
    wrong = []
    if not said:
        wrong.append(f"no version in `{top / 'include'}`: cudnn_version.h is missing or empty")
    elif said[0].split(".")[: version.count(".") + 1] != version.split("."):
        wrong.append(f"`{top}` is cuDNN {said[0]}, not {version}")
    if not any((top / each / "cudnn.lib").is_file() for each in ("lib/x64", "lib")):
        wrong.append(f"no cudnn.lib in `{top / 'lib' / 'x64'}`")
    major = version.split(".")[0]
    names = [f"{part}64_{major}.dll" for part in parts]
    lacking = [name for name in names if not (top / "bin" / name).is_file()]
    if lacking:
        wrong.append(f"not in `{top / 'bin'}`: {', '.join(lacking)}")
    return wrong


def anywhere(name: str, places: Sequence[str]) -> bool:
    """Whether a DLL lies in one of these folders, or on the PATH that the script was started with."""
    path = os.environ.get("RK_PATH", os.environ.get("PATH", ""))
    every = [*places, *path.split(os.pathsep), str(Path(os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32"))]
    return any(name.lower() == path.name.lower() for folder in every if folder for path in files_in(Path(folder)))


def header_version(name: str, top: Path) -> str:
    text = read(top / "include" / name)
    found = [re.search(rf"#define\s+CUDNN_{part}\s+(\d{{1,9}})", text) for part in ("MAJOR", "MINOR", "PATCHLEVEL")]
    return ".".join(match.group(1) for match in found if match) if all(found) else ""


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
    numbers = re.findall(r"release (\d{1,9}\.\d{1,9})", text) or re.findall(r"(\d{1,9}(?:\.\d{1,9}){1,7})", text)
    return ".".join(numbers[0].split(".")[: wanted.count(".") + 1]) if numbers else ""
