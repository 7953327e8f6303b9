"""Versions as people write them: a Python, a CUDA, an MSVC toolset."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.errors import UsageError
from rekindle.core.version import Version, typed
from rekindle.knowledge.torch import releases
from rekindle.model.cuda_line import CudaLine


class TypedPython(msgspec.Struct, frozen=True):
    version: str
    """`3.11`; `3.13t` is free-threaded."""
    bits: int | None = None

    def __str__(self) -> str:
        return f"{self.version}-{self.bits}" if self.bits else self.version


def read_python(text: str) -> TypedPython:
    """`3.11`, `3.11.9`, `py311`, `cp311`, `3.13t`, `3.7-32`."""
    plain = text.strip().lower().removeprefix("python").removeprefix("py").strip()
    match = re.fullmatch(r"(?:cp)?([23])\.?(\d{1,2})(?:\.\d+)?(t?)(?:-(32|64))?", plain)
    if not match or (match[1] == "2" and match[2] != "7"):
        raise UsageError(f"`{text[:40]}` is not a Python version", hint="write `--python 3.11`")
    if plain == "3.1":
        message = "there is no PyTorch for Python 3.1"
        raise UsageError(message, hint="Python 3.10 as a number is 3.1: write it in quotes, `3.10`")
    newest = releases.newest_python()
    if match[1] == "3" and int(match[2]) > newest.minor + 1:
        message = f"there is no Python {match[1]}.{match[2]} in Rekindle's data (newest: {newest})"
        raise UsageError(message, hint="write the Python you have, for example `--python 3.11`")
    return TypedPython(f"{match[1]}.{int(match[2])}{match[3]}", int(match[4]) if match[4] else None)


def read_cuda(text: str) -> Version:
    """`12.6`, `12`, `cu126`, `cu92`, `126`, `CUDA 12.4`."""
    plain = re.sub(r"^cuda[ =-]*(?=v?\d)", "", text.strip().lower())
    # Three digits are no major version.
    line = CudaLine.parse(f"cu{plain}" if re.fullmatch(r"\d{3}", plain) else plain)
    # As NVIDIA's packages are called: `cu12` is any 12.x.
    return line.cuda if line else typed(re.sub(r"^cu(?=1\d$)", "", plain), "`--cuda`", "12.6")


def read_toolset(text: str) -> Version:
    """`14.29`, `14.29.30133`, `MSVC 14.39`."""
    plain = re.sub(r"^msvc[ -]*", "", text.strip().lower())
    if re.fullmatch(r"v?14\d", plain):
        message = f"`{plain}` is Visual Studio's word for several toolsets"
        raise UsageError(message, hint="write `--toolset` like `14.39`")
    return typed(plain, "`--toolset`", "14.39")


def read_cudnn(said: str) -> Version | None:
    """`91002` is 9.10.2, `8902` is 8.9.2; torch's own text says `91.9` for 91900, which is 9.19."""
    major, *rest = (int(part) for part in said.split("."))
    if rest and major < 90:
        return Version(said)
    number = major * 1000 + rest[0] * 100 + sum(rest[1:2]) if rest else major
    if number >= 90000:
        return Version(f"{number // 10000}.{number // 100 % 100}.{number % 100}")
    return Version(f"{number // 1000}.{number // 100 % 10}.{number % 100}") if number >= 1000 else None
