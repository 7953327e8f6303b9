"""A PyTorch as people write it: `2.6`, `2.6.*`, `torch==2.6.0+cu118`, `>=2.6,<2.9`, `latest`."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.version import Range, Version
from rekindle.inputs.versions import read_cuda
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.model.cuda_line import CudaLine


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
        """The newest one that is meant. A number that Rekindle's data does not have stays as it is."""
        known = [patch for row in torch_releases() for patch in row.patches if self.admits(patch)]
        if known:
            return max(known, key=Version)
        if self.wanted and Range(self.wanted).exact:
            return self.wanted
        newest = torch_releases()[-1].newest
        raise UnknownName(f"no PyTorch is `{self.wanted}`", hint=f"the newest in Rekindle's data is {newest}")


def read_torch(text: str) -> TypedTorch:
    """A release to look for, or to build."""
    found = read_any_torch(text)
    if found.variant and CudaLine.parse(found.variant) is None:
        raise _no_cuda(found.variant)
    return found


def read_any_torch(text: str) -> TypedTorch:
    """One that somebody has: that may be without CUDA."""
    if not text.strip():
        raise UsageError("no PyTorch was named", hint="write a release like `2.7.1`, or `latest` for the newest")
    plain = re.sub(r"^(?:py)?torch(?=[ =<>!~]|$)", "", text.strip().lower()).strip()
    if plain in ("latest", "newest", ""):
        return TypedTorch()
    if plain == "nightly" or re.search(r"\d\.?(?:dev|rc|a)\d", plain):
        message = "builds of PyTorch before a release, nightly ones too, are not in Rekindle's data"
        hint = "write `--torch latest` for the newest release, or one like `2.7.1`; what code a file of them has for a "
        raise UsageError(message, hint=f"{hint}card `rekindle inspect WHEEL` reads off it")
    exact = re.fullmatch(r"={0,3}\s*v?([\d.]*\d)(?:\.\*)?(?:\+([\w.]+))?", plain)
    wanted, local = (exact[1], exact[2]) if exact else (plain, None)
    Range(wanted, "`--torch`")
    line = CudaLine.parse((local or "").partition(".")[0])
    if local and local != "cpu" and line is None:
        raise _no_cuda(local)
    return TypedTorch(wanted=wanted, variant=line.name if line else local)


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
