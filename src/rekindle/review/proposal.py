"""What would serve the card instead: one answer for all files of a project, for the installer of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rekindle.compat.judgement import Clash, Fits
from rekindle.compat.torch_python import takes
from rekindle.core.command import Command, pip_install
from rekindle.core.errors import UnknownName
from rekindle.core.version import Version
from rekindle.model.cuda_line import CudaLine, index_of
from rekindle.model.platform import Platform
from rekindle.model.torch_pin import CPU
from rekindle.review.document import LISTS
from rekindle.review.judging import CardAnswers, answered, serves
from rekindle.review.script_torch import ScriptTorch
from rekindle.review.subject import Subject
from rekindle.stack import offers, prebuilt
from rekindle.stack.candidates import jetson_routes
from rekindle.stack.driver import window_of
from rekindle.stack.offers import Offer
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation, Wish

_CHANNEL_ENDS = Version("2.6")
"""PyTorch's own channel of conda has what is before it."""
_Place = tuple[ScriptTorch, Situation]


def serving(torch: ScriptTorch, situation: Situation, project: Sequence[_Place] = ()) -> Offer | None:
    """A build that serves the cards and has the script's Python: of a release that is named if one is, else the newest.

    One for all of `project` where there is one, and one that loses nothing before others.
    """
    every = project or ((torch, situation),)
    place = Platform(torch.system, situation.arch)
    named = [offer for each, _ in every if each.version for offer in _of_release(each.version, place)]
    conda = offers.conda(place) if all(each.of_conda for each, _ in every) else ()
    own = [offer for offer in named if all(_by_installer(offer, each) for each, _ in every)]
    for group in (own, [*conda, *named, *offers.official(place)]):
        losing = None
        for offer in group:
            answers = [_answer(offer, *each) for each in every]
            if all(answers):
                if not any(each.loses for each in answers if each):
                    return offer
                losing = losing or offer
        if losing is not None:
            return losing
    return serving(torch, situation) if project else None


def _of_release(version: str, place: Platform) -> tuple[Offer, ...]:
    try:
        return offers.official_of(version, place)
    except UnknownName:
        return ()


def _by_installer(offer: Offer, torch: ScriptTorch) -> bool:
    """conda gets it from the channel that the file names."""
    if torch.kind == "conda":
        return offer.route is RouteKind.OFFICIAL_WHEEL and Version(offer.torch) < _CHANNEL_ENDS
    return not torch.of_conda


def _answer(offer: Offer, torch: ScriptTorch, situation: Situation) -> Fits | None:
    forge = offer.route is RouteKind.CONDA_FORGE
    have = torch.python in (None, *offer.pythons) if forge else torch.python is None
    if not have and (forge or isinstance(takes(offer.torch, str(torch.python), torch.system), Clash)):
        return None
    line = offer.variant or CudaLine(offer.cuda).name
    kind = "conda-forge" if forge else "wheel"
    answer = serves(msgspec.structs.replace(torch, version=offer.torch, variant=line, kind=kind), situation)
    return answer if isinstance(answer, Fits) else None


def of_project(subject: Subject, asked: CardAnswers) -> list[_Place]:
    """What the files of a project end with on this card, those that serve it first."""
    found: list[tuple[bool, _Place]] = []
    for other in subject.project:
        for one in answered(other):
            if (one.situation.cards, one.situation.system) == (asked.situation.cards, asked.situation.system):
                found += [
                    (isinstance(answer, Fits), (torch, one.situation))
                    for torch, answer in one.every
                    if torch.kind in ("wheel", "conda", "conda-forge") and torch.variant != CPU
                ]
    return [place for fits in (True, False) for known, place in found if known is fits]


def instead(subject: Subject, torch: ScriptTorch, situation: Situation, offer: Offer | None) -> str:
    """What would serve the cards, as the end of a sentence; empty where nothing is known to."""
    if offer is not None:
        return f". {offer.label} has code for it: {spelled(subject, torch, situation, offer)}"
    if any(card.jetson for card in situation.cards):
        routes = jetson_routes(situation, Wish())[0][:1]
        return "".join(f". {each.summary[:1].upper()}{each.summary[1:]}: {each.commands[0]}" for each in routes)
    if torch.python and serving(msgspec.structs.replace(torch, python=None), situation):
        return f". No torch for Python {torch.python} has code for it: take a newer Python"
    return ""


def spelled(subject: Subject, torch: ScriptTorch, situation: Situation, offer: Offer) -> str:
    """For the installer of the file: conda knows no index of pip's."""
    index = f"--index-url {index_of(offer.variant or '')}"
    listed = subject.document.dialect in LISTS
    if not torch.of_conda:
        return index
    if offer.route is RouteKind.CONDA_FORGE:
        free = msgspec.structs.replace(situation, python=torch.python)
        route, _ = prebuilt.consider(offer, free, Wish(), window_of(free))
        pins = route.conda if route else (f"pytorch={offer.torch}", f"cuda-version={offer.cuda}")
        return _conda(pins, "conda-forge", listed=listed)
    if _by_installer(offer, torch):
        return _conda((f"pytorch={offer.torch}", f"pytorch-cuda={offer.cuda}"), "pytorch", "nvidia", listed=listed)
    if listed:
        return f"in place of conda's, under `- pip:`, `{index}` and `torch=={offer.pin}`"
    line = pip_install([f"torch=={offer.pin}"], index_url=index_of(offer.variant or ""), python="python")
    return f"in place of conda's, in its environment, `{line}`"


def _conda(pins: Iterable[str], *channels: str, listed: bool) -> str:
    if listed:
        return f"{', '.join(f'`{pin}`' for pin in pins)} of {' and '.join(channels)}"
    named = (word for channel in channels for word in ("-c", channel))
    return f"`{Command('conda', 'install', *named, *pins, system='linux')}`"
