"""A system or a processor as people write it: `win11`, `Ubuntu 22.04`, `WSL2`; `amd64`."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.errors import UsageError, did_you_mean
from rekindle.core.paths import ARCHITECTURES
from rekindle.core.version import Version
from rekindle.inputs import plain
from rekindle.knowledge.gpu import jetson
from rekindle.knowledge.torch import wheel_platforms

_WITHOUT_WHEELS = ("ppc64le", "ppc64", "s390x", "riscv64", "armv7l", "i686", "i386")
_WINDOWS = (
    r"(?:microsoft )?win(?:dows)?(?:[ _-]?(?:\d[\d.]*|xp|vista|server.*)(?: r2)?)?"
    r"(?:,? (?:home|pro|professional|enterprise|education|iot|ltsc|n|x64|64[ -]?bit|\d\dh[12]|version \w+))*"
)
# As people write them and as Python's `platform` does: `Windows 7`, `win8.1`, `Windows-2012ServerR2-6.3.9600`.
_OLD_WINDOWS = (
    r"(?i)(?:microsoft )?win(?:dows)?[ -]?"
    r"(?:(xp|vista|7|8\.1|8)|(?:server )?(2003|2008|2012)(?:server)?([ -]?r2)?)(?![\d.])"
)
_WSL = r"(?:wsl|windows subsystem for linux) ?(?P<version>[12])?(?: \(?(?P<linux>[^()]+)\)?)?"
_INSIDE_WSL = (
    r"(?P<linux>\w[\w .-]*?),? \(?(?:(?:on|in|inside|under|via|with) )?"
    r"(?:wsl|windows subsystem for linux) ?(?P<version>[12])?\)?"
)
_JETPACK = r"(?:nvidia )?(?:(?:jetpack|jp)[ -]?(\d)(\.\d{1,9})?[\d.]*|(?:jetson )?(?:linux|l4t)[ -]?r?(3\d)[\d.]*)"
_MACS = ("macos", "mac", "darwin", "osx")
_WITHOUT_CUDA = (
    r"((?:free|open|net|dragonfly)bsd|(?:open)?solaris|android|win(?:dows)?(?: 1[01])?(?: on)? arm(?:64)?)\b.*"
)


class TypedSystem(msgspec.Struct, frozen=True, kw_only=True):
    """`release` only of a Windows that is too old; the C library only where the name tells it."""

    system: str
    release: str | None = None
    distribution: str | None = None
    libc: str | None = None
    glibc: Version | None = None
    wsl: bool = False
    l4t: int | None = None
    """The major release of L4T that a JetPack is, where it has a wheel."""
    spoken: str | None = None
    """`Ubuntu 22.04`, where more than `linux` was said."""
    note: str | None = None

    @property
    def driver_system(self) -> str:
        """Whose drivers are meant: WSL runs on the driver of Windows."""
        return "windows" if self.wsl else self.system


def jetpack_release(spoken: str) -> str | None:
    """`6.0` of `JetPack 6.0`, where its second number was said."""
    board = re.fullmatch(_JETPACK, plain(spoken))
    return board[1] + board[2] if board and board[2] else None


def read_system(text: str) -> TypedSystem:
    """`windows`, `win11`, `linux`, `Ubuntu 22.04`, `centos7`, `alpine`, `WSL2`, `JetPack 6.2`, `L4T R36`."""
    name = plain(text).replace("_", " ")
    if name in ("linux", "windows", "gnu/linux"):
        return TypedSystem(system=name.removeprefix("gnu/"))
    if name.split(" ")[0] in _MACS:
        message = "macOS has no NVIDIA driver, and Rekindle knows NVIDIA's cards only"
        raise UsageError(message, hint="on a Mac `pip install torch` is enough: it uses the GPU as device `mps`")
    if none := re.fullmatch(_WITHOUT_CUDA, name):
        message = f"PyTorch with CUDA does not exist for `{none[1]}`"
        raise UsageError(message, hint="write `--os linux` or, for one on x64, `--os windows`")
    if re.fullmatch(_WINDOWS, name):
        return TypedSystem(system="windows", release=old_windows(name))
    wsl = re.fullmatch(_WSL, name) or re.fullmatch(_INSIDE_WSL, name)
    if wsl:
        return _inside_windows(wsl["version"], wsl["linux"])
    if board := re.fullmatch(_JETPACK, name):
        l4t = int(board[3]) if board[3] else jetson.l4t_of(int(board[1]))
        return TypedSystem(system="linux", l4t=l4t, spoken=text.strip()[:40])
    found = wheel_platforms.find(name)
    if found is None:
        names = ("windows", "linux", *(each for row in wheel_platforms.linux_systems() for each in row.names))
        hint = did_you_mean(name.split(" ")[0], names)
        hint += "write `windows` or `linux`, or a distribution with its release: `Ubuntu 22.04`"
        raise UsageError(f"unknown system `{text[:40]}`", hint=hint)
    row, glibc = found
    spoken = wheel_platforms.released(text)[:40]
    spoken = spoken if spoken != spoken.lower() else spoken.capitalize()
    note = row.note
    if row.glibc and glibc is None:
        known = ", ".join(row.glibc)
        note = f"which glibc {spoken} has is not in Rekindle's data (known: {known}): whether wheels load is UNVERIFIED"
    return TypedSystem(system="linux", distribution=row.id, libc=row.libc, glibc=glibc, spoken=spoken, note=note)


def _inside_windows(version: str | None, distribution: str | None) -> TypedSystem:
    """WSL: a Linux, Ubuntu for most, on the driver of Windows."""
    if version == "1":
        message = "WSL 1 has no access to the GPU"
        raise UsageError(message, hint="convert it with `wsl --set-version DISTRIBUTION 2`, then write `--os wsl2`")
    linux = read_system(distribution or "linux")
    if linux.system != "linux":
        raise UsageError(f"`{distribution}` does not run in WSL", hint="write `--os wsl2`")
    # The driver is Windows' own, so no package of the distribution brings it.
    return msgspec.structs.replace(linux, distribution=None, wsl=True)


def old_windows(name: str) -> str | None:
    """`7` of `Windows-7-6.1.7601`, `Server 2012 R2` of `windows server 2012 r2`; None of one that is recent enough."""
    match = re.match(_OLD_WINDOWS, name)
    if match is None:
        return None
    if match[2]:
        return f"Server {match[2]}" + (" R2" if match[3] else "")
    return match[1] if match[1][0].isdigit() else {"xp": "XP", "vista": "Vista"}[match[1].lower()]


def read_processor(text: str) -> str:
    """`x86_64` or `aarch64`, however a system calls it."""
    if (found := ARCHITECTURES.get(plain(text))) is not None:
        return found
    if plain(text) in _WITHOUT_WHEELS:
        message = f"PyTorch has no wheels with CUDA for `{text.strip()}`"
        raise UsageError(message, hint="ask the maker of the machine for its channel, or build there from source")
    raise UsageError(f"unknown processor `{text[:40]}`", hint="write `--arch x86_64` or `--arch aarch64`")
