"""A card and its code, as values: a compute capability, what code is compiled for, a card by its name."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from rekindle.core.pattern import late
from rekindle.core.version import Keyed

_TARGET = late(r"(sm|compute)_(\d{1,2})(\d)([af]?)\Z")


class Capability(Keyed):
    """A compute capability: `3.5`, `12.0`."""

    __slots__ = ("major", "minor")
    _key: tuple[int, int]

    def __init__(self, major: int, minor: int) -> None:
        self.major, self.minor = self._key = (major, minor)

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str) -> Capability:
        """Reads `3.5`, `sm_35`, `compute_35`, `35`."""
        major, dot, minor = text.strip().partition(".")
        digits = major + minor
        if dot and len(minor) == 1 and len(digits) <= 3 and digits.isascii() and digits.isdigit() and major:
            return cls(int(major), int(minor))
        digits = text.strip().lower().removeprefix("sm_").removeprefix("compute_").removeprefix("sm")
        if digits.isascii() and digits.isdigit() and 2 <= len(digits) <= 3:
            return cls(int(digits[:-1]), int(digits[-1]))
        raise ValueError(f"`{text[:40]}` is not a compute capability")

    @property
    def sm(self) -> str:
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Target(Keyed):
    """What code was compiled for: `sm_35` (a cubin), `compute_86` (PTX), `sm_90a`, `sm_120f`."""

    __slots__ = ("_hash", "capability", "ptx", "suffix")
    _key: tuple[int, int, bool, str]

    def __init__(self, capability: Capability, *, ptx: bool = False, suffix: str = "") -> None:
        self.capability = capability
        self.ptx = ptx
        self.suffix = suffix
        # A wheel has thousands of entries, which are counted and sorted by it.
        self._key = (capability.major, capability.minor, ptx, suffix)
        self._hash = hash(self._key)

    @classmethod
    @lru_cache(maxsize=512)
    def parse(cls, text: str) -> Target:
        match = _TARGET.match(text.strip())
        if not match:
            raise ValueError(f"`{text[:40]}` is not a target like sm_35 or compute_86")
        return cls(Capability(int(match[2]), int(match[3])), ptx=match[1] == "compute", suffix=match[4])

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"{'compute' if self.ptx else 'sm'}_{self.capability.major}{self.capability.minor}{self.suffix}"

    @property
    def virtual(self) -> str:
        """The PTX that its code is made from: `compute_90a` of `sm_90a`."""
        return f"compute_{self.capability.major}{self.capability.minor}{self.suffix}"

    @property
    def gencode(self) -> str:
        """What nvcc's `-gencode` takes."""
        return f"arch={self.virtual},code={self}"


class NamedCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card by what it is called and what its chip is."""

    name: str
    capability: Capability
