"""Version numbers of things that do not follow PEP 440: drivers, toolkits, toolsets, cuDNN.

A driver is called `580.65.06`; a PEP 440 reader would say `580.65.6`. Here the spelling survives and only the order is
numeric. Missing parts count as zero, so `12.0` equals `12`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeVar

from rekindle.core.errors import UsageError
from rekindle.core.pattern import late

K = TypeVar("K", bound="Keyed")

_LONGEST = 400
_NUMBERS = late(r"\d{1,9}(?:\.\d{1,9}){0,7}\Z")
_UNREAL = late(r"(?:\A|[=<>v+. ])\d{10,}(?:[.+ ]|\Z)|(?:\d{1,9}\.){8}\d")


def unreal(text: object) -> bool:
    """Whether a text that somebody wrote has a number in it where a version stands, and no version has such a one."""
    return isinstance(text, str) and _UNREAL.search(text) is not None


class Keyed:
    """A small value that is equal, ordered and hashed by its `_key`, and shown by its spelling."""

    __slots__ = ("_key",)
    _key: Any

    def __eq__(self, other: object) -> bool:
        return bool(self._key == other._key) if isinstance(other, type(self)) else NotImplemented

    def __lt__(self: K, other: K) -> bool:
        return bool(self._key < other._key)

    def __le__(self: K, other: K) -> bool:
        return bool(self._key <= other._key)

    def __gt__(self: K, other: K) -> bool:
        return bool(self._key > other._key)

    def __ge__(self: K, other: K) -> bool:
        return bool(self._key >= other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class Version(Keyed):
    __slots__ = ("_short", "parts", "text")
    _key: tuple[int, ...]

    def __init__(self, text: str) -> None:
        if not _NUMBERS.match(text):
            raise ValueError(f"`{text[:40]}` is not a version number")
        self.parts = tuple(int(part) for part in text.split("."))
        # Digits of other scripts are numbers too, and are written as everybody's.
        self.text = text if text.isascii() else ".".join(map(str, self.parts))
        self._short: Version | None = None
        key = self.parts
        while len(key) > 1 and key[-1] == 0:
            key = key[:-1]
        self._key = key

    @classmethod
    @lru_cache(maxsize=2048)
    def parse(cls, text: str) -> Version:
        return cls(text)

    @classmethod
    def find(cls, text: str) -> Version | None:
        """The first version-like number in a text, or None."""
        match = re.search(r"(?<![\d.])\d{1,9}(?:\.\d{1,9}){1,7}", text)
        return cls(match.group()) if match else None

    @property
    def major(self) -> int:
        return self.parts[0]

    @property
    def minor(self) -> int:
        return self.parts[1] if len(self.parts) > 1 else 0

    @property
    def major_minor(self) -> Version:
        if self._short is None:
            self._short = self if len(self.parts) == 2 else Version.parse(f"{self.major}.{self.minor}")
        return self._short

    @property
    def release(self) -> Version:
        """Its first three numbers: `8.7.0` of 8.7.0.84."""
        return self if len(self.parts) <= 3 else Version(".".join(str(part) for part in self.parts[:3]))

    def starts_with(self, other: Version) -> bool:
        """`12.9.86` starts with `12.9`; `12.10` does not start with `12.1`."""
        mine, theirs = self.parts, other.parts
        return mine[: len(theirs)] == theirs or self == other

    def __str__(self) -> str:
        return self.text


def typed(text: str, what: str, example: str, *, said: str | None = None) -> Version:
    """A version that a person typed: `v12.6` is 12.6. What is none is an error that quotes all that was `said`."""
    try:
        return Version(text.strip().lower().removeprefix("v"))
    except ValueError:
        message = f"`{(said or text)[:40]}` is not a version number"
        raise UsageError(message, hint=f"write {what} like `{example}`") from None


class Range:
    """Which versions are wanted: `2.7` (any 2.7.x), `2.7.1`, or as pip writes it, `>=2.6,<2.9`, `~=2.6`."""

    def __init__(
        self, text: str, what: str = "the version", examples: str = "2.7.1` or `>=2.6,<2.9", *, said: str | None = None
    ) -> None:
        self.text = text.strip().lower().removeprefix("v").partition("+")[0]
        self._specifiers: Any = None
        self._beginning: Version | None = None
        if self.text[:1] in "<>=!~":
            from packaging.specifiers import InvalidSpecifier, SpecifierSet

            try:
                # A number of five thousand digits is one to packaging, and none to Python.
                self._specifiers = SpecifierSet(self.text if len(self.text) < _LONGEST else "?")
            except InvalidSpecifier:
                message = f"`{(said or text)[:60]}` is not a range of versions"
                raise UsageError(message, hint=f"write {what} like `{examples}`") from None
        else:
            self._beginning = typed(self.text, what, examples, said=said or text)

    @property
    def exact(self) -> bool:
        """One version or one minor, and not a range."""
        return self._specifiers is None

    def holds(self, version: str) -> bool:
        if self._beginning is not None:
            return Version.parse(version).starts_with(self._beginning)
        return bool(self._specifiers.contains(version, prereleases=True))
