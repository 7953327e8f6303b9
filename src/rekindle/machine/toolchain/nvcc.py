"""Reads what nvcc and ptxas say: version, targets, and, from a dry run, which programs it really calls.

nvcc asks its profile for PATH and calls `ptxas` by bare name. Where that profile does not put its own folder first (as
Debian's), another toolkit's ptxas that lies earlier on PATH is what runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Target
from rekindle.machine.host import CouldNotRead

_RELEASE = re.compile(r"release (\d{1,4}\.\d{1,4}), V(\d{1,4}(?:\.\d{1,6}){1,3})(?!\d)")
_ASSIGNED = re.compile(r"^#\$ ([A-Za-z_]\w*)=(.*)$", re.MULTILINE)
_CALLED = re.compile(r'^#\$ "?((?:[^"\n]*[/\\])?(ptxas|cicc)(?:\.exe)?)"?(?=\s)', re.MULTILINE)

_LONGEST = 65536
_PROFILE = re.compile(r"^[ \t]*([A-Za-z_]\w{0,60})[ \t]*(\+=|=\+|\?=|=)[ \t]*(.*)$", re.MULTILINE)


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """`here` is the folder of the real nvcc behind whatever wrapper was called."""

    here: str | None
    search: tuple[str, ...]
    called: dict[str, str]
    """`ptxas` and `cicc` as nvcc calls them: a bare name or a path."""
    version: Version | None


def parse_version(text: str) -> Version:
    """`Cuda compilation tools, release 11.8, V11.8.89` → 11.8.89."""
    match = _RELEASE.search(text)
    if not match:
        raise CouldNotRead("this is not what `nvcc --version` prints")
    return Version(match[2])


def parse_targets(text: str) -> tuple[Target, ...]:
    """The lines of `nvcc --list-gpu-code`."""
    found = []
    for line in text.splitlines():
        word = line.strip()
        if word.startswith(("sm_", "compute_")):
            try:
                found.append(Target.parse(word))
            except ValueError as error:
                raise CouldNotRead(f"`{word[:40]}` is not a target") from error
    if not found:
        raise CouldNotRead("this is not what `nvcc --list-gpu-code` prints")
    return tuple(sorted(set(found)))


def parse_dry_run(text: str, *, separator: str) -> DryRun:
    """From `nvcc --dryrun`: its settings, and the last program of each kind that it would start."""
    settings: dict[str, str] = {}
    for name, value in _ASSIGNED.findall(text):
        settings[name] = value.strip()
    called: dict[str, str] = {}
    for path, name in _CALLED.findall(text):
        called[name] = re.sub(r"\$(\w+)", lambda match: settings.get(match[1], match[0]), path)
    if not settings or "ptxas" not in called:
        raise CouldNotRead("the dry run of nvcc names no ptxas")
    parts = [settings.get("PATH", "")]
    number = re.search(
        r"-D__CUDACC_VER_MAJOR__=(\d{1,4})\s+-D__CUDACC_VER_MINOR__=(\d{1,4})\s+-D__CUDACC_VER_BUILD__=(\d{1,6})", text
    )
    return DryRun(
        here=settings.get("_HERE_"),
        search=tuple(entry for entry in parts[0].split(separator) if entry),
        called=called,
        version=Version(".".join(number.groups())) if number else None,
    )


def parse_profile(text: str, *, here: str, path: str, separator: str) -> DryRun:
    """From `nvcc.profile`, when no dry run can be had: the PATH that nvcc makes for the programs it calls by bare name.

    In its language `+=` puts in front and `=+` behind.
    """
    settings = {"_HERE_": here, "PATH": path}
    found = False
    for name, operator, value in _PROFILE.findall(text):
        value = re.sub(r"\$\((\w+)\)", lambda match: settings.get(match[1], ""), value.strip())
        before = settings.get(name, "")
        joined = {"+=": value + before, "=+": before + value, "?=": before or value}.get(operator, value)
        settings[name] = joined[:_LONGEST]  # a profile that names itself over and over must not fill the memory
        found = True
    if not found:
        raise CouldNotRead("nvcc.profile sets nothing")
    cicc = f"{settings['CICC_PATH']}/cicc" if settings.get("CICC_PATH") else "cicc"
    search = tuple(entry.strip() for entry in settings["PATH"].split(separator) if entry.strip())
    return DryRun(here=here, search=search, called={"ptxas": "ptxas", "cicc": cicc}, version=None)


def resolve(
    called: str, search: tuple[str, ...], *, join: Callable[..., str], exists: Callable[[str], bool], ending: str
) -> str | None:
    """The file that a bare name or a path stands for, the way nvcc's shell would find it."""
    if "/" in called or "\\" in called:
        return called if exists(called) else called + ending if exists(called + ending) else None
    for folder in search:
        for name in dict.fromkeys((called + ending, called)):
            if exists(join(folder, name)):
                return join(folder, name)
    return None
