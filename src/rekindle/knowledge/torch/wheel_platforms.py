"""What the official wheels need of a system: the oldest glibc that pip lets them onto, and Windows' runtime.

Linux systems stand here by the names people give them, with the C library that decides which wheels load.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import NamedRow, Row, cached, decided, rows


class WheelPlatform(Row, frozen=True, kw_only=True):
    """The wheel of one minor release for one machine. `cuda`: it is a CUDA build, not a CPU one.

    `line`: only the wheels of this line are so; the others are like the one on the package index.
    """

    minor: str
    torch: str
    machine: str
    line: str | None = None
    tag: str
    glibc: Version
    cuda: bool


wheel_platforms = rows("wheel_platforms.json", "wheels", WheelPlatform)
line_platforms = rows("line_platforms.toml", "wheels", WheelPlatform)


def of(minor: str, machine: str, line: str | None = None) -> WheelPlatform | None:
    """The row of a minor release; None when the index has no wheel of it for that machine."""
    found = {
        row.line: row for row in (*wheel_platforms(), *line_platforms()) if (row.minor, row.machine) == (minor, machine)
    }
    return found.get(line, found.get(None))


def depends_on_line(minor: str, machine: str) -> bool:
    return any((row.minor, row.machine) == (minor, machine) for row in line_platforms())


class Aarch64Line(Row, frozen=True, kw_only=True):
    """A CUDA line for aarch64 on PyTorch's own index."""

    minor: str
    variant: str
    cuda: Version
    arch_list: str


@cached
def aarch64_lines(minor: str) -> tuple[Aarch64Line, ...]:
    rows = decided("aarch64_lines", dict[str, tuple[Aarch64Line, ...]])["line"]
    return tuple(row for row in rows if row.minor == minor)


class VariantProvider(Row, frozen=True, kw_only=True):
    """Code that tells an installer what a computer has, and may be named by a wheel's variant."""

    name: str


variant_providers = rows("variant_providers.toml", "provider", VariantProvider)


class LinuxSystem(NamedRow, frozen=True, kw_only=True):
    names: tuple[str, ...]
    glibc: dict[str, Version] = msgspec.field(default_factory=dict)
    """By release: `{"22.04": 2.35}`."""
    python: dict[str, str] = msgspec.field(default_factory=dict)
    """The `python3` of a release."""
    pip: dict[str, Version] = msgspec.field(default_factory=dict)
    """The `python3-pip` of a release."""
    gcc: dict[str, tuple[int, int, int]] = msgspec.field(default_factory=dict)
    """The `gcc` of a release, and the oldest and the newest `gcc-N` that its packages have."""
    libc: str = "glibc"
    codenames: dict[str, str] = msgspec.field(default_factory=dict)
    """`{"jammy": "22.04"}`."""
    of: dict[str, str] = msgspec.field(default_factory=dict)
    """Which of these releases one of a system is that counts its own: `{"mint 22": "24.04"}`."""
    managed: tuple[str, ...] = ()
    """The releases whose own Python takes nothing from pip (PEP 668); `any` for one without releases."""
    driver: str | None = None
    module: str | None = None
    note: str | None = None
    """What whoever installs there has to know."""


linux_systems = rows("linux_systems.toml", "system", LinuxSystem)


class PackageManager(NamedRow, frozen=True, kw_only=True):
    """`names`: what it calls the packages of Debian; `same`: those that it calls the same."""

    systems: tuple[str, ...]
    install: tuple[str, ...]
    names: dict[str, str]
    same: tuple[str, ...] = ()


managers = rows("linux_systems.toml", "manager", PackageManager)


def installs(system: str, packages: Collection[str]) -> tuple[str, ...]:
    """The words that install these packages of Debian there. None: it takes Debian's, or their names are not known."""
    row = next((row for row in managers() if system in row.systems), None)
    known = {each: each for each in row.same} | row.names if row else {}
    return (*row.install, *(known[each] for each in packages)) if row and {*packages} <= {*known} else ()


def find(text: str) -> tuple[LinuxSystem, Version | None] | None:
    """The system of `Ubuntu 22.04`, `centos7` or `rhel8.6`, and its glibc where the release is known."""
    row, releases = _named(text)
    return (row, next((row.glibc[each] for each in releases if each in row.glibc), None)) if row else None


def own_python(text: str) -> str | None:
    """The `python3` that such a system comes with."""
    row, releases = _named(text)
    return next((row.python[each] for each in releases if each in row.python), None) if row else None


def is_managed(text: str) -> bool:
    """Does pip of such a system refuse to install outside of an environment?"""
    row, releases = _named(text)
    return row is not None and bool({"any", *releases} & set(row.managed))


def released(text: str) -> str:
    """`Ubuntu 22.04` for `jammy` and `ubuntu jammy`; anything else as it is."""
    last = text.lower().split()[-1:]
    coded = next((row for row in linux_systems() if {*last} & {*row.codenames}), None)
    return f"{coded.id.capitalize()} {coded.codenames[last[0]]}" if coded else text.strip()


def _named(text: str) -> tuple[LinuxSystem | None, tuple[str, ...]]:
    """The system, and its release as it was written, then by fewer numbers."""
    plain = re.sub(r"(?<=\d) ?sp ?(?=\d)", ".", released(text).lower())  # SUSE's `15 SP5`
    match = re.fullmatch(r"([a-z!/ _-]+?)[ _-]?(?:v?(\d[\d.]*)(?: lts)?)?(?: \(.*\))?", plain)
    name = re.sub(r"linux|\b(gnu|os|ve|server|enterprise|stream|rolling)\b|[^a-z]", "", match[1]) if match else ""
    row = next((row for row in linux_systems() if name in row.names), None)
    if match is None or row is None:
        return None, ()
    numbers = (match[2] or "").split(".")
    own = {theirs.removeprefix(f"{name} "): ours for theirs, ours in row.of.items() if theirs.startswith(f"{name} ")}
    releases = (".".join(numbers[:count]) for count in range(len(numbers), 0, -1))
    return row, tuple(own.get(each, "") if own else each for each in releases)


class RuntimeLibrary(Row, frozen=True, kw_only=True):
    """A library in System32 that wheels from `from_torch` on import."""

    name: str
    from_torch: Version
    imported_by: str


runtime_libraries = rows("visual_runtime.toml", "library", RuntimeLibrary)


def needed_by(torch: Version | None) -> tuple[RuntimeLibrary, ...]:
    """What this release imports; without one, what any release does."""
    return tuple(row for row in runtime_libraries() if torch is None or torch >= row.from_torch)


class OldLine(Row, frozen=True, kw_only=True):
    """A CUDA wheel of a release that no other table has."""

    torch: str
    variant: str
    cuda: Version
    system: str
    arch_list: str
    pythons: tuple[str, ...]
    torchvision: str


old_lines = rows("old_lines.toml", "line", OldLine)
