"""Does a ready-made package go with this torch and Python? Their files and pages say what they were built for."""

from __future__ import annotations

import msgspec

from rekindle.compat.extension_torch import ABIS, official_abi, same_abi, same_cuda
from rekindle.compat.judgement import Clash, Fits, Judgement, Unknown
from rekindle.core.errors import UnknownName
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.knowledge.torch.releases import torch_release
from rekindle.model.cuda_line import CudaLine, cuda_in
from rekindle.model.torch_pin import CPU

# `torch2.6cxx11abiFALSE`, `pt24cu121`, `torch280`, `torch-2.5.0+cu121.html`, `cu121/torch2.1.0/index.html`.
_TORCH = late(r"(?:torch|pt)[-_]?v?(\d{1,2}\.\d{1,2}|(\d)(\d{1,2}?)(?=0?(?:cu|cp|[-_+.]|$)))")
_ABI = late(r"(?i)cxx11abi[-_]?(true|false)")
_PYTHON = late(r"-cp(\d)(\d{1,2})-(?!abi3)")
_SYSTEM = late(r"-(?:many)?(linux|win|macosx)[\w.]*\.whl\Z")
_SYSTEMS = {"linux": "linux", "win": "windows", "macosx": "macos"}
_CPU = late(r"(?<![A-Za-z])cpu(?![A-Za-z])")
_SOURCE = "the name of the file, which its makers choose by what it was built with"


class BuiltFor(msgspec.Struct, frozen=True, kw_only=True):
    """What the name of a wheel, or of a page of wheels, says. None: it does not say."""

    name: str
    torch: Version | None = None
    cuda: str | None = None
    """`12.1`, or `12` where only the major version is named."""
    cxx_abi: str | None = None
    python: str | None = None
    system: str | None = None

    @property
    def shown(self) -> str:
        return f"`{self.name[-90:]}`"


def built_for(name: str) -> BuiltFor:
    """`flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp312-cp312-linux_x86_64.whl`; pages of PyG and OpenMMLab."""
    plain = name.replace("%2B", "+").replace("%2b", "+")
    torch, cuda = _TORCH.search(plain), cuda_in(plain)
    abi, python = _ABI.search(plain), _PYTHON.search(plain)
    number = torch[1] if torch and "." in torch[1] else ""
    number = _release(torch[2], torch[3], cuda) if torch and torch[2] and not number else number
    return BuiltFor(
        name=plain,
        torch=Version(number) if number else None,
        cuda=str(cuda) if cuda else None,
        cxx_abi=ABIS[abi[1].upper()] if abi else None,
        python=f"{python[1]}.{python[2]}" if python else None,
        system=_SYSTEMS[system[1]] if (system := _SYSTEM.search(plain)) else None,
    )


def _release(major: str, rest: str, cuda: Version | None) -> str:
    """The 2.1 of `torch211cu121`, the 2.11 of `torch211cu130`: the release that had such a line."""
    short, long = f"{major}.{rest}", f"{major}.{'.'.join(rest)}"
    try:
        apart = len(rest) == 2 and any(each.cuda == cuda for each in torch_release(long).variants)
    except UnknownName:
        return short
    return f"{major}.{rest[0]}" if apart else short


def goes_here(built: BuiltFor, *, python: str | None, system: str) -> Clash | None:
    """What speaks against a file, whichever torch is there: its system, and its Python."""
    if built.system not in (None, system):
        return _clash(built, str(built.system), f"the script is for {system}")
    if built.python is not None and python is not None and built.python != python:
        return _clash(built, f"Python {built.python}", f"the environment has Python {python}")
    return None


def goes_with(
    built: BuiltFor, *, torch: str, line: str | None, python: str | None, system: str, on_card: bool = False
) -> Judgement:
    """Whether a file that was built for one torch goes with another, and with what runs on a card."""
    if clash := goes_here(built, python=python, system=system):
        return clash
    have = Version(torch)
    later = "andhigher" in built.name and built.torch is not None and have.major_minor > built.torch
    if built.torch is not None and have.major_minor != built.torch and not later:
        return _clash(built, f"torch {built.torch}", f"the environment has torch {torch}")
    # What was compiled with a torch that has the newer ABI alone has it too, whatever its makers call the file.
    own = official_abi(built.torch, None) if built.torch is not None and built.cxx_abi else None
    own = own if own == ABIS["TRUE"] else built.cxx_abi
    abi = same_abi(built.shown, own, official_abi(have, line)) if system == "linux" else None
    cuda = CudaLine.parse(line)
    runtime = same_cuda(built.shown, Version(built.cuda), cuda.cuda) if built.cuda is not None and cuda else None
    if on_card and line != CPU and built.torch is not None and built.cuda is None and _CPU.search(built.name):
        return _clash(built, "the CPU", f"torch {torch} runs on a GPU here, which it does not reach")
    for answer in (abi, runtime):
        if isinstance(answer, Clash):
            return answer
    return Fits() if built.torch is not None else Unknown(missing=f"which torch `{built.name[-60:]}` was built for")


def loads(wheel: str, need: Version | None, glibc: Version | None) -> Judgement:
    """Whether a file that needs this glibc is loaded by a system that has that one."""
    if need is None or glibc is None:
        return Unknown(missing=f"which glibc {'the system has' if need else f'{wheel} needs'} is not known")
    if glibc >= need:
        return Fits()
    sentence = f"{wheel} needs glibc {need} or newer; this system has {glibc}"
    return Clash(sentence=sentence, source="platform tag of the wheel")


def _clash(built: BuiltFor, own: str, here: str) -> Clash:
    return Clash(sentence=f"{built.shown} was built for {own}, and {here}", source=_SOURCE)
