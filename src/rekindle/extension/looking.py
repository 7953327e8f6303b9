"""A wheel is looked into: its GPU code against the cards; its CUDA, its C++ ABI and its symbols against torch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rekindle.audit.symbols import Offered
from rekindle.compat.extension_torch import same_abi
from rekindle.compat.judgement import Clash
from rekindle.compat.torch_cuda import package_line
from rekindle.core import fetch
from rekindle.core.errors import RekindleError
from rekindle.core.findings import State
from rekindle.extension.check import ServedCards, TorchLink, link_to, served_by
from rekindle.extension.question import ExtensionQuestion
from rekindle.model.cuda_line import CudaLine
from rekindle.wheels.inspect.identity import torch_line

_MOST, _SMALL = 128 << 20, 8 << 20


class LookedInto(msgspec.Struct, frozen=True):
    """`bound`: its pin or symbols say that it is for this torch. `free`: nothing links torch; it `brings` what may."""

    state: State
    said: str
    bound: bool = False
    free: bool = False
    brings: str = ""


def look_into(place: str | Path, question: ExtensionQuestion, pure: bool) -> LookedInto:
    """Only headers are read. `pure`: GPU code in it (helpers of a compiler) is not what runs."""
    torch = question.beside
    try:
        large = _large(place)
        link = link_to(place, torch, most=0 if pure else _SMALL if large else None)
        if large and not (pure or link.cuda) and (usual := _other_major(question)):
            return LookedInto(State.FAIL, f"does not fit: the index has it as PyTorch's own wheels there, for {usual}")
        served = None if pure or large else served_by(place, question.cards, question.line)
    except RekindleError as error:
        why = error.message.removeprefix(f"`{place}` could not be read: ")
        return LookedInto(State.UNVERIFIED, f"its GPU code was not looked at, for the file could not be read: {why}")
    judged = same_abi("it", served.cxx_abi, torch.cxx_abi) if link.torch and served else None
    against = link.wrong or (judged.sentence if isinstance(judged, Clash) else None)
    if against:
        return LookedInto(State.FAIL, f"does not fit: {against}")
    if served is None:
        state = State.UNVERIFIED if large and not pure else State.PASS
        said = large if large and not pure else "it has no GPU code to look for"
        return LookedInto(state, said, link.pinned, free=not (link.torch or torch_line(link.asks)))
    state, said = _code(served, link, question)
    held = torch.installed if state is State.PASS else None
    if held and Offered(Path(held.root)).empty:
        held, state = None, State.UNVERIFIED
        said = "the torch there has no libraries to hold its symbols against"
    elif held and link.torch:
        said += ", and every symbol it needs is in the torch there"
    brings = link.brings(question.system)
    bound = link.pinned or (held is not None and link.torch)
    return LookedInto(state, said, bound, not (link.torch or brings), brings)


def _other_major(question: ExtensionQuestion) -> str | None:
    """The CUDA line that pip brings with this torch, where it is of another major than the one that is asked for."""
    usual = package_line(question.torch, question.platform)
    line = CudaLine.parse(usual)
    return usual if line and question.cuda and line.cuda.major != question.cuda.major else None


def _large(place: str | Path) -> str | None:
    """Why a file is not read: its GPU code lies compressed in it, so that most of it would have to be fetched."""
    size = fetch.content_length(place) if isinstance(place, str) else 0
    return f"it is a file of {size >> 20} MiB: its GPU code was not read" if size > _MOST else None


def _code(served: ServedCards, link: TorchLink, question: ExtensionQuestion) -> tuple[State, str]:
    """Does what is in a file run on the cards?"""
    if not served.targets and link.compiled and not link.cuda:
        return State.FAIL, "has no GPU code"
    if not served.targets:
        why = "calls CUDA's libraries and has no GPU code of its own" if link.compiled else "has no compiled library"
        return State.UNVERIFIED, f"it {why}: the file does not say which cards it runs on"
    if served.lacks:
        lacks = "; ".join(served.lacks)
        if not served.partly:
            return State.FAIL, lacks
        return State.UNVERIFIED, f"only a part of it has code for the card, the rest {lacks}"
    if not question.cards:
        return State.UNVERIFIED, "no card is known to look for: name one with `--gpu`"
    return State.PASS, f"it has code for {', '.join(served.targets)}"
