"""What a wheel is, in one type: name, tags, and what it was built with and for.

Everything that speaks of a wheel (an inspection, a verification, an entry on a shelf) inherits from it, so that their
JSON stays flat and a conversion that takes a `WheelIdentity` takes each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rekindle.core.pattern import late
from rekindle.core.version import Version

if TYPE_CHECKING:
    from packaging.tags import Tag

_MACHINES = (
    ("amd64", "x86_64"), ("x86_64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64"), ("win32", "x86"),
)  # fmt: skip
_GLIBC = late(r"manylinux_(\d{1,3})_(\d{1,3})_")
# What the older names of these platforms stand for (PEP 513, 571 and 599).
_OLD_GLIBC = {"manylinux1_": "2.5", "manylinux2010_": "2.12", "manylinux2014_": "2.17"}
# The last part of a variant's file name (PEP 817), before the ending.
_LABEL = late(r"(?P<plain>[^-]+-[^-]+(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+)-(?P<label>[0-9a-z._]+)\.whl\Z")


class WheelName(NamedTuple):
    """What a file name says. `plain` is the name without the label of a wheel variant."""

    project: str
    version: str
    tags: frozenset[Tag]
    plain: str
    label: str | None


def read_name(file: str) -> WheelName:
    """Raises packaging's `InvalidWheelFilename`."""
    from packaging.utils import parse_wheel_filename

    match = _LABEL.match(file)
    # Five parts and a build number, which begins with a digit, are a name without a label.
    labelled = match if match and (file.count("-") > 5 or not file.split("-")[2][:1].isdigit()) else None
    plain = f"{labelled['plain']}.whl" if labelled else file
    project, version, _, tags = parse_wheel_filename(plain)
    return WheelName(project, str(version), tags, plain, labelled["label"] if labelled else None)


class WheelVariant(msgspec.Struct, frozen=True, kw_only=True):
    """What a wheel variant says of itself: the computers it is for by namespace and feature, and who can tell."""

    label: str
    properties: dict[str, dict[str, tuple[str, ...]]]
    providers: dict[str, dict[str, Any]] = {}
    namespaces: tuple[str, ...] = ()
    """The providers, the most important first."""


class WheelIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """`tags` are whole triples such as `cp311-cp311-win_amd64`; `build` is the build tag of the file name.

    `torch` is the version of the torch that it is, or that it was built for; `targets` counts the entries of GPU code
    per target; `cpu` is the x86-64 level that the code demands (`v3`). None: not known.
    """

    project: str | None = None
    version: str | None = None
    build: str | None = None
    tags: tuple[str, ...] = ()
    torch: str | None = None
    cuda: Version | None = None
    cudnn: str | None = None
    targets: dict[str, int] = {}
    cpu: str | None = None
    cxx_abi: str | None = None
    glibc: Version | None = None
    variant: WheelVariant | None = None

    @property
    def is_torch(self) -> bool:
        return (self.project or "").lower().replace("_", "-") == "torch"

    @property
    def system(self) -> str | None:
        """`windows` or `linux`; None for a wheel of any platform, or of one that is neither."""
        return system_of(self.tags)

    @property
    def machine(self) -> str | None:
        return machine_of(self.tags)

    @property
    def pythons(self) -> tuple[str, ...]:
        """The Python versions its tags name: `3.11`, free-threaded `3.13t`. A tag such as `py3` names none."""
        found = set()
        for tag in self.tags:
            interpreter, abi, *_ = (*tag.split("-"), "")
            version = python_of(interpreter)
            if version:
                found.add(f"{version}t" if abi.endswith("t") and abi[:-1].startswith("cp") else version)
        return tuple(sorted(found, key=lambda text: (Version(text.rstrip("t")), text)))

    @property
    def oldest_glibc(self) -> Version | None:
        """What the files need, or what the platform tag promises, whichever is newer."""
        stated = [version for tag in self.tags if (version := tagged_glibc(tag.split("-")[-1]))]
        known = [version for version in (self.glibc, min(stated, default=None)) if version is not None]
        return max(known, default=None)


def identity_fields(wheel: WheelIdentity) -> dict[str, Any]:
    """The fields of the identity alone, to make another value of the same wheel."""
    return {name: getattr(wheel, name) for name in WheelIdentity.__struct_fields__}


def python_of(tag: str) -> str | None:
    """`3.11` of `cp311`; None for `py3`, which names no minor version."""
    digits = tag.lstrip("abcdefghijklmnopqrstuvwxyz").rstrip("t")
    return f"{digits[0]}.{digits[1:]}" if 1 < len(digits) < 5 and digits.isascii() and digits.isdigit() else None


def system_of(tags: tuple[str, ...]) -> str | None:
    platforms = {tag.split("-")[-1] for tag in tags}
    if any(platform.startswith("win") for platform in platforms):
        return "windows"
    return "linux" if any("linux" in platform for platform in platforms) else None


def machine_of(tags: tuple[str, ...]) -> str | None:
    if system_of(tags) is None:
        return None
    for platform in sorted(tag.split("-")[-1] for tag in tags):
        for ending, machine in _MACHINES:
            if platform.endswith(ending):
                return machine
    return None


def tagged_glibc(platform: str) -> Version | None:
    """The glibc that a platform tag promises."""
    match = _GLIBC.match(platform)
    if match:
        return Version(f"{match[1]}.{match[2]}")
    return next((Version(text) for old, text in _OLD_GLIBC.items() if platform.startswith(old)), None)
