"""A kind of computer, for which a wheel or a toolkit is made: its system and its processor."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rekindle.core import paths

PlainWord = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9_]*\Z")]
"""A part of a folder's name."""


class Platform(msgspec.Struct, frozen=True):
    system: PlainWord
    arch: PlainWord

    @classmethod
    def here(cls) -> Platform:
        return cls(paths.system(), paths.architecture())

    @property
    def word(self) -> str:
        """As NVIDIA's manifests call it: `linux-x86_64`, `windows-x86_64`, `linux-sbsa`."""
        return f"{self.system}-{'sbsa' if self.arch == 'aarch64' else self.arch}"

    def __str__(self) -> str:
        """As it is said to a person, who has an x86_64 unless told otherwise."""
        return self.system.capitalize() + (f" on {self.arch}" if self.arch != LINUX.arch else "")


LINUX, WINDOWS = Platform("linux", "x86_64"), Platform("windows", "x86_64")
