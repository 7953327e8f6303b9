"""A Python as people write it: `3.11`, `3.11.9`, `py311`, `cp311`, `3.13t`, `3.7-32`."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.errors import UsageError
from rekindle.knowledge.torch import releases


class TypedPython(msgspec.Struct, frozen=True):
    version: str
    """`3.11`; `3.13t` is free-threaded."""
    bits: int | None = None

    def __str__(self) -> str:
        return f"{self.version}-{self.bits}" if self.bits else self.version


def read_python(text: str) -> TypedPython:
    plain = text.strip().lower().removeprefix("python").removeprefix("py").strip()
    match = re.fullmatch(r"(?:cp)?([23])\.?(\d{1,2})(?:\.\d+)?(t?)(?:-(32|64))?", plain)
    if not match or (match[1] == "2" and match[2] != "7"):
        message = f"`{text[:40]}` is not a Python version"
        raise UsageError(message, hint="write `--python 3.11`")
    if plain == "3.1":
        message = "there is no PyTorch for Python 3.1"
        raise UsageError(message, hint="Python 3.10 as a number is 3.1: write it in quotes, `3.10`")
    newest = releases.newest_python()
    if match[1] == "3" and int(match[2]) > newest.minor + 1:
        message = f"there is no Python {match[1]}.{match[2]} in Rekindle's data (newest: {newest})"
        raise UsageError(message, hint="write the Python you have, for example `--python 3.11`")
    return TypedPython(f"{match[1]}.{int(match[2])}{match[3]}", int(match[4]) if match[4] else None)
