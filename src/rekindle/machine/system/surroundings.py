"""Disks, paths, encodings, WSL: what is neither hardware nor toolchain and still breaks builds."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from rekindle.core.disk import dev_drive
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import steering_variables
from rekindle.knowledge.torch.wheel_platforms import runtime_libraries
from rekindle.machine.host import Run, readable
from rekindle.machine.model import Disk, Surroundings
from rekindle.machine.system import windows

_MUSL = late(r"ld-musl-.*\.so\.1")
_DEFENDER = "HKLM\\SOFTWARE\\Microsoft\\Windows Defender\\Exclusions\\Paths"


def probe(run: Run) -> Surroundings:
    places = run.told("places", _ask_places, dict) or {}
    console = run.told("console", _ask_console, dict) or {}
    platform = run.windows or not run.exists("/etc/os-release")
    glibc = run.told("glibc", _ask_glibc, str)
    musl = not run.windows and bool(run.names("/lib", _MUSL))
    return Surroundings(
        release=_release(run, run.told("platform", _ask_platform, str) if platform else None),
        glibc=Version.find(glibc) if glibc is not None else None,
        libc="musl" if musl else "glibc" if glibc is not None else None,
        l4t=None if run.windows else l4t(run.text("/etc/nv_tegra_release")),
        distribution=None if run.windows else distribution(run.text("/etc/os-release")),
        wsl=wsl(run),
        container=run.exists("/.dockerenv") or run.exists("/run/.containerenv"),
        long_paths=_long_paths(run),
        git_long_paths=_git_long_paths(run),
        console_encoding=_text(console.get("encoding")),
        console_code_page=console.get("code_page") if isinstance(console.get("code_page"), int) else None,
        utf8_mode=bool(console.get("utf8_mode")) if "utf8_mode" in console else None,
        defender_exclusions=_exclusions(run),
        visual_runtime=_visual_runtime(run),
        here=_text(places.get("here")),
        home=_text(places.get("home")),
        temp=_text(places.get("temp")),
    )


def disks(run: Run) -> tuple[Disk, ...]:
    found = []
    for row in run.told("disks", _ask_disks, list) or ():
        if isinstance(row, dict) and isinstance(row.get("role"), str) and isinstance(row.get("path"), str):
            total, free = (row.get(key) if isinstance(row.get(key), int) else None for key in ("total", "free"))
            dev = row["dev_drive"] if isinstance(row.get("dev_drive"), bool) else None
            found.append(Disk(role=row["role"], path=row["path"], total=total, free=free, dev_drive=dev))
    return tuple(found)


def l4t(text: str | None) -> int | None:
    """`36` of `# R36 (release), REVISION: 4.3`, which every Jetson has."""
    match = re.match(r"#\s*R(\d{2})\b", text or "")
    return int(match[1]) if match else None


_FAMILIES = ("ubuntu", "debian", "fedora", "arch", "nixos", "suse")


def distribution(text: str | None) -> str | None:
    """The family whose packages a distribution takes: `ubuntu` for Linux Mint and Pop!_OS."""
    said = dict(re.findall(r"(?m)^(ID|ID_LIKE)=\"?([^\"\n]*)", text or ""))
    words = [said.get("ID", ""), *said.get("ID_LIKE", "").split()]
    return next((word for word in words if word in _FAMILIES), None)


def wsl(run: Run) -> str | None:
    """`1` or `2` inside the Windows Subsystem for Linux."""
    kernel = "" if run.windows else run.text("/proc/version") or ""
    if "microsoft" not in kernel.lower():
        return None
    return "2" if "WSL2" in kernel or run.exists("/dev/dxg") else "1"


def _release(run: Run, fallback: str | None) -> str | None:
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', (not run.windows and run.text("/etc/os-release")) or "", re.MULTILINE)
    return name[1] if name else fallback


def _long_paths(run: Run) -> bool | None:
    if not run.windows:
        return None
    value = (run.registry("HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem") or {}).get("LongPathsEnabled")
    return bool(value) if isinstance(value, int) else None


def _git_long_paths(run: Run) -> bool | None:
    git = run.which("git") if run.windows else []
    if not git:
        return None
    said = run.command(git[0], "config", "--get", "core.longpaths")
    if not said.started:
        return None
    return said.out.strip().lower() in ("true", "yes", "on", "1")


def _exclusions(run: Run) -> tuple[str, ...] | None:
    if not run.windows:
        return None
    found = run.registry(_DEFENDER)
    return None if found is None else tuple(sorted(name for name in found if name))


def _visual_runtime(run: Run) -> tuple[str, ...] | None:
    said = run.told("visual runtime", _ask_visual_runtime, list) if run.windows else None
    return tuple(name for name in said if isinstance(name, str)) if said is not None else None


def _ask_visual_runtime() -> list[str]:
    system = Path(os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32")
    return [row.name for row in runtime_libraries() if (system / row.name).is_file()]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _ask_platform() -> str:
    import platform

    return platform.platform()


def _ask_places() -> dict[str, str]:
    # As `tempfile` does it, which is slow to import and would write a file to try.
    named = next((os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)), None)
    temp = named or ("C:\\Windows\\Temp" if os.name == "nt" else "/tmp")
    found = {"temp": temp}
    # The folder may be gone, and a user without an entry in the system has no home.
    for role, place in (("here", Path.cwd), ("home", Path.home)):
        with contextlib.suppress(OSError, RuntimeError):
            found[role] = str(place())
    return {role: readable(found[role]) for role in ("here", "home", "temp") if role in found}


def _ask_disks() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for role, path in _ask_places().items():
        try:
            total, free = _space(path)
            dev = dev_drive(path)
            kind = {} if dev is None else {"dev_drive": dev}
            rows.append({"role": role, "path": path, "total": total, "free": free, **kind})
        except OSError:
            rows.append({"role": role, "path": path})
    return rows


def _space(path: str) -> tuple[int, int]:
    if hasattr(os, "statvfs"):
        # `shutil` does the same and takes every compression library along.
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    import shutil

    usage = shutil.disk_usage(path)
    return usage.total, usage.free


def _ask_console() -> dict[str, Any]:
    encoding = sys.stdout.encoding if sys.stdout else None
    return {"encoding": encoding, "utf8_mode": sys.flags.utf8_mode, "code_page": windows.console_code_page()}


def _ask_glibc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else None
    except (OSError, ValueError):
        return None


def stale_variables(run: Run) -> tuple[str, ...]:
    """The names of the variables that steer a build and name something that is not there, programs first."""
    found = [name for name in steering_variables("programs") if (value := run.env(name)) and not _starts(run, value)]
    for name in steering_variables("folders"):
        value = run.env(name)
        if value and not run.exists(value.strip().strip('"').rstrip("\\/")):
            found.append(name)
    return tuple(found)


def _starts(run: Run, value: str) -> bool:
    """Is there such a program? `CC` may carry options or a cache in front: `ccache gcc -m64`."""
    value = value.strip()
    quoted = re.match(r'"([^"]+)"', value)
    whole = quoted[1] if quoted else value
    word = whole if run.exists(whole) else whole.split()[0]
    if re.search(r"[\\/]", word):
        return run.exists(word) or run.exists(f"{word}.exe")
    return bool(run.which(word))
