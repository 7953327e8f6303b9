"""Does a compiled extension go with this torch? The CUDA runtime it is linked to, its C++ ABI, the symbols it wants."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import since
from rekindle.knowledge.torch import wheel_platforms

_RUNTIME = late(r"(?:lib)?cudart(?:64_|\.so\.)(\d\d)", re.IGNORECASE)
# As wheels name the two: `cxx11abiTRUE`.
ABIS = {"TRUE": "cxx11", "FALSE": "pre-cxx11"}


def runtimes(needed: Iterable[str]) -> list[int]:
    """The majors of the CUDA runtimes that a library is linked to, by the names of what it needs."""
    return sorted({int(match[1]) for name in needed if (match := _RUNTIME.match(name))})


def same_cuda(file: str, built: Version, torch: Version | None) -> Judgement:
    """Within a major the runtimes are compatible. `torch` None: that torch is for the CPU only."""
    if torch is not None and built.major == torch.major:
        return Fits()
    source = "two CUDA runtimes of different majors in one process do not share streams, contexts or memory"
    if torch is None:
        return Clash(sentence=f"{file} uses CUDA {built}, and torch is built for the CPU only", source=source)
    text = f"build it with a CUDA {torch.major} toolkit"
    change = Alternative(what="toolkit", value=str(torch.major), text=text)
    sentence = f"{file} uses CUDA {built}, and torch is built for CUDA {torch}"
    return Clash(sentence=sentence, source=source, changes=(change,))


def official_abi(torch: Version, line: str | None) -> str | None:
    """The C++ ABI of PyTorch's own wheel for Linux. None: it depends on the line, which is not known."""
    minor = str(torch.major_minor)
    if line is None and wheel_platforms.depends_on_line(minor, "x86_64"):
        return None
    platform = wheel_platforms.of(minor, "x86_64", line)
    # PyTorch took the new C++ ABI and that glibc in one step.
    old = platform.glibc < since("new-abi-glibc") if platform else torch < Version("2.0")
    return "pre-cxx11" if old else "cxx11"


def same_abi(file: str, own: str | None, torch: str | None) -> Judgement:
    if own is None or torch is None:
        return Unknown(missing=f"the C++ ABI of {'torch' if torch is None else file}")
    if own == torch:
        return Fits()
    return Clash(
        sentence=f"{file} has the C++ ABI {own}, torch has {torch}",
        source="_GLIBCXX_USE_CXX11_ABI: a string of the one is another type than a string of the other",
    )


def has_symbols(file: str, missing: int, torch: str) -> Judgement:
    if not missing:
        return Fits()
    return Clash(
        sentence=f"{file} was built for another torch: {missing} symbols that it wants are not in {torch}",
        source="it fails at import with `undefined symbol` or WinError 127",
    )
