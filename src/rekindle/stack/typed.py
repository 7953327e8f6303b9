"""What people type on a command line, read into values: a system, a processor, a version, a Python, a release."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.errors import UsageError
from rekindle.core.paths import ARCHITECTURES
from rekindle.core.version import Version, typed
from rekindle.knowledge.torch import releases, wheel_platforms

_WINDOWS = re.compile(r"(?:microsoft )?win(?:dows)?(?:[ _-]?(?:\d[\d.]*|xp|vista|server.*)(?: r2)?)?")
# As people write them and as Python's `platform` does: `Windows 7`, `win8.1`, `Windows-2012ServerR2-6.3.9600`.
_OLD_WINDOWS = re.compile(
    r"(?i)(?:microsoft )?win(?:dows)?[ -]?"
    r"(?:(xp|vista|7|8\.1|8)|(?:server )?(2003|2008|2012)(?:server)?([ -]?r2)?)(?![\d.])"
)
_WSL = re.compile(r"wsl ?([12])?(?: (.+))?")
_MACS = ("macos", "mac", "darwin", "osx")


class TypedSystem(msgspec.Struct, frozen=True, kw_only=True):
    """`release` only of a Windows that is too old; the C library only where the name tells it."""

    system: str
    release: str | None = None
    distribution: str | None = None
    libc: str | None = None
    glibc: Version | None = None
    wsl: bool = False
    spoken: str | None = None
    """`Ubuntu 22.04`, where more than `linux` was said."""
    note: str | None = None

    @property
    def driver_system(self) -> str:
        """Whose drivers are meant: WSL runs on the driver of Windows."""
        return "windows" if self.wsl else self.system


def system_of(text: str) -> TypedSystem:
    """`windows`, `win11`, `linux`, `Ubuntu 22.04`, `centos7`, `alpine`, `WSL2`."""
    name = text.strip().lower().replace("_", " ")
    if name.split(" ")[0] in _MACS:
        message = "macOS has no NVIDIA driver, and Rekindle knows NVIDIA's cards only"
        raise UsageError(message, hint="on a Mac `pip install torch` is enough: it uses the GPU as device `mps`")
    if _WINDOWS.fullmatch(name):
        return TypedSystem(system="windows", release=old_windows(name))
    wsl = _WSL.fullmatch(name)
    if wsl:
        return _inside_windows(wsl[1], wsl[2])
    if name in ("linux", "gnu/linux"):
        return TypedSystem(system="linux")
    found = wheel_platforms.find(name)
    if found is None:
        raise UsageError(f"unknown system `{text[:40]}`", hint="write `--os windows` or `--os linux`")
    row, glibc = found
    spoken = text.strip()[:40]
    spoken = spoken if spoken != spoken.lower() else spoken.capitalize()
    note = None
    if row.glibc and glibc is None:
        known = ", ".join(row.glibc)
        note = f"which glibc {spoken} has is not in Rekindle's data (known: {known}): whether wheels load is UNVERIFIED"
    return TypedSystem(system="linux", distribution=row.id, libc=row.libc, glibc=glibc, spoken=spoken, note=note)


def _inside_windows(version: str | None, distribution: str | None) -> TypedSystem:
    """WSL: a Linux, Ubuntu for most, on the driver of Windows."""
    if version == "1":
        message = "WSL 1 has no access to the GPU"
        raise UsageError(message, hint="convert it with `wsl --set-version DISTRIBUTION 2`, then write `--os wsl2`")
    linux = system_of(distribution or "linux")
    if linux.system != "linux":
        raise UsageError(f"`{distribution}` does not run in WSL", hint="write `--os wsl2`")
    # The driver is Windows' own, so no package of the distribution brings it.
    return msgspec.structs.replace(linux, distribution=None, wsl=True)


def old_windows(name: str) -> str | None:
    """`7` of `Windows-7-6.1.7601`, `Server 2012 R2` of `windows server 2012 r2`; None of one that is recent enough."""
    match = _OLD_WINDOWS.match(name)
    if match is None:
        return None
    if match[2]:
        return f"Server {match[2]}" + (" R2" if match[3] else "")
    return match[1] if match[1][0].isdigit() else {"xp": "XP", "vista": "Vista"}[match[1].lower()]


def arch_of(text: str | None) -> str | None:
    """`x86_64` or `aarch64`, however a system calls it."""
    if text is None:
        return None
    if text.strip().lower() not in ARCHITECTURES:
        raise UsageError(f"unknown processor `{text[:40]}`", hint="write `--arch x86_64` or `--arch aarch64`")
    return ARCHITECTURES[text.strip().lower()]


def version_of(text: str | None, option: str) -> Version | None:
    """What an option says, or None where it was not given. A CUDA may be written as PyTorch's lines are: `cu126`."""
    if text is None:
        return None
    example = {"--driver": "550.54.14", "--cuda": "12.6", "--toolset": "14.39"}.get(option, "11.8")
    line = re.fullmatch(r"(?:cuda[ -]?)?(?:cu(\d+)(\d)|(\d.*))", text.strip().lower()) if option == "--cuda" else None
    plain = (f"{line[1]}.{line[2]}" if line[1] else line[3]) if line else text
    return typed(plain, f"`{option}`", example)


def torch_of(text: str | None, cuda: str | None) -> tuple[str | None, Version | None]:
    """The release or range, and the CUDA, of `2.6`, `2.6.*`, `torch==2.6.0+cu118`, `torch>=2.6`, `latest`."""
    wanted = version_of(cuda, "--cuda")
    if text is None:
        return None, wanted
    plain = re.sub(r"^(?:py)?torch(?=[ =<>!~]|$)", "", text.strip().lower()).strip()
    if plain in ("latest", "newest", ""):
        return None, wanted
    exact = re.fullmatch(r"={0,3}\s*v?(\d+(?:\.\d+)*)(?:\.\*)?(?:\+(\w+))?", plain)
    if exact is None:
        return plain, wanted
    if exact[2] and re.fullmatch(r"cu\d{3,4}", exact[2]):
        line = version_of(exact[2], "--cuda")
        if wanted is not None and wanted.parts[:2] != (line.parts[:2] if line else ()):
            message = f"`--torch {text[:40]}` is a build for CUDA {line}, and `--cuda` says {wanted}"
            raise UsageError(message, hint="leave one of them out")
        wanted = line
    elif exact[2]:
        message = f"`+{exact[2][:20]}` is not a CUDA build of PyTorch"
        raise UsageError(message, hint="Rekindle looks for CUDA builds: write `--torch 2.7.1` or `--torch 2.7.1+cu126`")
    return exact[1], wanted


def python_of(text: str | None) -> tuple[str | None, int | None]:
    """`3.11` of `3.11`, `3.11.9` or `cp311`; `3.13t` stays free-threaded; `3.7-32` is a 32-bit one."""
    if text is None:
        return None, None
    plain = text.strip().lower().removeprefix("python").removeprefix("py").strip()
    match = re.fullmatch(r"(?:cp)?(\d)\.?(\d{1,2})(?:\.\d+)?(t?)(?:-(32|64))?", plain)
    if not match or match[1] not in "23" or (match[1] == "2" and match[2] != "7"):
        message = f"`{text[:40]}` is not a Python version"
        raise UsageError(message, hint="write `--python 3.11`")
    newest = releases.newest_python()
    if match[1] == "3" and int(match[2]) > newest.minor + 1:
        message = f"there is no Python {match[1]}.{match[2]} in Rekindle's data (newest: {newest})"
        raise UsageError(message, hint="write the Python you have, for example `--python 3.11`")
    return f"{match[1]}.{int(match[2])}{match[3]}", int(match[4]) if match[4] else None
