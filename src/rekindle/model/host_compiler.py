"""What nvcc calls for the host's half: GCC and clang by their version, MSVC by its toolset."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version

_CALLED = {"gcc": "GCC", "clang": "clang", "msvc": "MSVC toolset"}


class HostCompiler(msgspec.Struct, frozen=True):
    kind: str
    version: Version

    def __str__(self) -> str:
        return f"{_CALLED[self.kind]} {self.version if self.kind == 'msvc' else self.version.major}"


def gcc(version: Version | int) -> HostCompiler:
    return HostCompiler("gcc", version if isinstance(version, Version) else Version(str(version)))


def msvc(toolset: Version) -> HostCompiler:
    return HostCompiler("msvc", toolset)
