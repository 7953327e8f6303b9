"""A PyTorch as people write it: `2.6`, `2.6.*`, `torch==2.6.0+cu118`, `>=2.6,<2.9`, `latest`."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.version import Range, Version
from rekindle.inputs import plain
from rekindle.inputs.versions import read_cuda, spelled_cuda
from rekindle.knowledge.cuda.toolkits import toolkit as known_toolkit
from rekindle.knowledge.torch.companions import made_with
from rekindle.knowledge.torch.releases import early, patches, torch_release, torch_releases
from rekindle.model.cuda_line import CudaLine
from rekindle.model.torch_pin import CPU

_NEWEST = ("latest", "newest", "stable", "")
_EXACT = r"={0,3}\s*v?([\d.]*\d)(?:\.[*x])?(?:(?:\+|[ -](?=cu))([\w.]+))?"


class TypedTorch(msgspec.Struct, frozen=True, kw_only=True):
    wanted: str | None = None
    """A release, the beginning of one, or a range; None: the newest."""
    variant: str | None = None
    """The `cu118` or `cpu` of `2.6.0+cu118`."""

    def admits(self, version: str) -> bool:
        number = Version.find(version)
        return self.wanted is None or (number is not None and Range(self.wanted).holds(str(number)))

    @property
    def release(self) -> str:
        """The newest one that is meant."""
        return max(filter(self.admits, (*early(), *patches())), key=Version)


def not_released(wanted: str) -> UnknownName:
    """A release that is not in the data is an error of its own, with what is."""
    if Range(wanted).exact:
        torch_release(wanted)
    message = f"no PyTorch of Rekindle's data is in the range `{wanted}`"
    return UnknownName(message, hint=f"the data has {torch_releases()[0].minor} to {torch_releases()[-1].newest}")


def read_torch(text: str) -> TypedTorch:
    """A release to look for, or to build."""
    found = read_any_torch(text)
    line = CudaLine.parse(found.variant)
    if found.variant and line is None:
        raise _no_cuda(found.variant)
    if line:
        known_toolkit(line.cuda)
    return found


def read_any_torch(text: str) -> TypedTorch:
    """One that somebody has: that may be without CUDA."""
    if not text.strip():
        raise UsageError("no PyTorch was named", hint="write a release like `2.7.1`, or `latest` for the newest")
    said = _release_of("(?:py)?torch", text)
    if said in _NEWEST:
        return TypedTorch()
    if said == "nightly" or re.search(r"\d\.?(?:dev|rc|a)\d", said):
        message = "builds of PyTorch before a release, nightly ones too, are not in Rekindle's data"
        hint = "write `--torch latest` for the newest release, or one like `2.7.1`; what code a file of them has for a "
        raise UsageError(message, hint=f"{hint}card `rekindle inspect WHEEL` reads off it")
    exact = re.fullmatch(_EXACT, said)
    wanted, local = (exact[1], exact[2]) if exact else (said, None)
    span = Range(wanted, "`--torch`", said=text)
    # As people call the line: `+cu11.8`, `+cuda118`.
    near = re.fullmatch(r"cu(?:da)?-?(\d\d\.?\d)", local or "")
    line = CudaLine(spelled_cuda(near[1])) if near else CudaLine.parse((local or "").partition(".")[0])
    if local and local != CPU and line is None:
        raise _no_cuda(local)
    if not any(map(span.holds, (*patches(), *early()))):
        raise not_released(wanted)
    return TypedTorch(wanted=wanted, variant=line.name if line else local)


def read_torchvision(text: str) -> str:
    """A release or a range of it: `0.21`, `torchvision==0.21.0+cu118`, `>=0.20`; `latest` is any."""
    if not text.strip():
        raise UsageError("no torchvision was named", hint="write a release like `0.21`, or `latest` for the newest")
    said = _release_of("torchvision", text)
    exact = re.fullmatch(_EXACT, said)
    wanted = exact[1] if exact else ">=0" if said in _NEWEST else said
    made_with("torchvision", wanted)
    return wanted


def _release_of(name: str, text: str) -> str:
    """What is said of it, without its name: `2.6.0` of `torch-2.6.0`, `==2.6` of `torch==2.6`."""
    return re.sub(rf"^{name}(?:-(?=v?\d)|(?=[ =<>!~]|$))", "", plain(text)).strip()


def with_cuda(text: str | None, toolkit: str | None) -> tuple[TypedTorch, Version | None]:
    """What both options say together: a build for a CUDA is a wish for that CUDA."""
    said = read_cuda(toolkit) if toolkit is not None else None
    torch = read_torch(text) if text is not None else TypedTorch()
    line = CudaLine.parse(torch.variant)
    if line and said and said.parts[:2] != line.cuda.parts[:2]:
        message = f"`--torch {text}` is a build for CUDA {line.cuda}, and `--cuda` says {said}"
        raise UsageError(message, hint="leave one of them out")
    return torch, line.cuda if line else said


def _no_cuda(local: str) -> UsageError:
    message = f"`+{local[:20]}` is not a CUDA build of PyTorch"
    return UsageError(message, hint="Rekindle looks for CUDA builds: write `--torch 2.7.1` or `--torch 2.7.1+cu126`")
