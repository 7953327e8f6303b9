"""Versions as people write them: a Python, a CUDA, an MSVC toolset."""

from __future__ import annotations

import re

import msgspec

from rekindle.compat.host_compiler import toolset_of_compiler, toolsets_of
from rekindle.core.errors import UsageError
from rekindle.core.version import Version, typed
from rekindle.inputs import plain
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.torch import releases
from rekindle.model.cuda_line import CudaLine


class TypedPython(msgspec.Struct, frozen=True):
    version: str
    """`3.11`; `3.13t` is free-threaded."""
    bits: int | None = None

    def __str__(self) -> str:
        return f"{self.version}-{self.bits}" if self.bits else self.version


def read_python(text: str) -> TypedPython:
    """`3.11`, `3.11.9`, `3.11.x`, `py311`, `cp311`, `3.13t`, `3.7-32`."""
    if plain(text).startswith(("pypy", "graalpy", "jython", "ironpython", "pyston")):
        raise UsageError(f"PyTorch has wheels for CPython alone, none for `{text[:40]}`", hint="write `--python 3.11`")
    number = re.sub(r" ?\(?(32|64)[- ]bit\)?$", r"-\1", plain(text).removeprefix("python").removeprefix("py").strip())
    match = re.fullmatch(r"(?:cp|v)?([23])\.?(\d{1,2})(?:\.(?:\d+|[x*]))?(t?)(?:-(32|64))?", number)
    if not match or (match[1] == "2" and match[2] != "7"):
        raise UsageError(f"`{text[:40]}` is not a Python version", hint="write `--python 3.11`")
    if number == "3.1":
        message = "there is no PyTorch for Python 3.1"
        raise UsageError(message, hint="Python 3.10 as a number is 3.1: write it in quotes, `3.10`")
    newest = releases.newest_python()
    if match[1] == "3" and int(match[2]) > newest.minor + 1:
        message = f"there is no Python {match[1]}.{match[2]} in Rekindle's data (newest: {newest})"
        raise UsageError(message, hint="write the Python you have, for example `--python 3.11`")
    return TypedPython(f"{match[1]}.{int(match[2])}{match[3]}", int(match[4]) if match[4] else None)


def read_cuda(text: str) -> Version:
    """`12.6`, `12`, `cu126`, `cu92`, `126`, `CUDA 12.4`: one that there is."""
    version = spelled_cuda(text)
    toolkits.toolkit(version)
    return version


def spelled_cuda(text: str) -> Version:
    """The same of one that may be newer than the tables."""
    number = re.sub(r"(?<=^\d\d)-(?=\d$)", ".", re.sub(r"^cu(?:da|(?=\d\d\.))[ =-]*(?=v?\d)", "", plain(text)))
    # Three digits are no major version.
    line = CudaLine.parse(f"cu{number}" if re.fullmatch(r"\d{3}", number) else number)
    # As NVIDIA's packages are called: `cu12` is any 12.x.
    return line.cuda if line else typed(re.sub(r"^cu(?=1\d$)", "", number), "`--cuda`", "12.6", said=text)


def read_toolset(text: str) -> Version:
    """`14.29`, `MSVC 14.39.33519`; by the compiler's number `19.29` or `1929`; by its Studio `VS2022`, `17.9`."""
    number = re.sub(r"^(?:msvc|visual studio|vs)[ -]*(?=v?\d)", "", plain(text))
    if re.fullmatch(r"v?c?14\d", number):
        message = f"`{text[:40]}` is Visual Studio's word for several toolsets"
        raise UsageError(message, hint="write one of them, like `14.39`")
    version = typed(re.sub(r"^19(?=\d\d$)", "19.", number), "the toolset", "14.39", said=text)
    if version.major == 19:
        return toolset_of_compiler(version)
    studio = toolsets_of(str(version if len(version.parts) == 1 else version.major_minor))
    # Visual Studio 2015 had 14.0; the next one began with 14.10.
    if not studio and (len(version.parts) < 2 or version.major != 14 or 0 < version.minor < 10):
        known = f"known are {toolsets_of(None)[0]} to {toolsets_of(None)[-1]}"
        raise UsageError(f"`{text[:40]}` is not an MSVC toolset", hint=f"write the toolset like `14.39`; {known}")
    # Microsoft calls a component 14.29.16.11, by the toolset and its Studio.
    return max(studio, default=version if len(version.parts) < 4 else version.major_minor)


def read_cudnn(said: str) -> Version | None:
    """`91002` is 9.10.2, `8902` is 8.9.2; torch's own text says `91.9` for 91900, which is 9.19."""
    major, *rest = (int(part) for part in said.split("."))
    if rest and major < 90:
        return Version(said)
    number = major * 1000 + rest[0] * 100 + sum(rest[1:2]) if rest else major
    if number >= 90000:
        return Version(f"{number // 10000}.{number // 100 % 100}.{number % 100}")
    return Version(f"{number // 1000}.{number // 100 % 10}.{number % 100}") if number >= 1000 else None
