"""Everything that is true of one card, put together: what `rekindle gpu` answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from rekindle.compat import old_wheels
from rekindle.compat.judgement import holds
from rekindle.compat.library_card import last_cudnn, math_serves
from rekindle.compat.old_wheels import OldShare
from rekindle.core import codec
from rekindle.core.codec import JsonAnswer
from rekindle.core.command import Command, rekindle
from rekindle.core.errors import UsageError
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import capabilities, gpus, jetson, names
from rekindle.knowledge.gpu.capabilities import CardAdvice, advice
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.tables import Evidence
from rekindle.model.card import Capability
from rekindle.model.platform import Platform
from rekindle.stack import offers, prebuilt
from rekindle.stack.driver import window_of
from rekindle.stack.offers import Offer
from rekindle.stack.programs import for_card
from rekindle.stack.rules import Rejection
from rekindle.stack.situation import SYSTEMS, Card, Situation, Wish

T = TypeVar("T")


class SoldChip(msgspec.Struct, frozen=True, kw_only=True):
    """One chip sold under the name."""

    name: str
    compute_capability: Capability
    architecture: str
    chip: str
    pci_ids: tuple[str, ...]
    last_driver_branch: str | None
    source: str
    evidence: Evidence


class ServingWheel(msgspec.Struct, frozen=True, kw_only=True):
    """An official wheel that `rekindle plan` would offer for the card. `cudnn_serves` None: not known."""

    torch: str
    variant: str
    cuda: Version
    cudnn: Version | None
    cudnn_serves: bool | None
    by_jit: bool
    experimental: bool
    loses: tuple[str, ...] = ()
    """What does not work with it on the card, and does with another."""
    evidence: Evidence


class CardAnswer(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    """The answer of `rekindle gpu`. A field is null where the candidates differ or the tables do not know."""

    schema: str = "rekindle.gpu/1"
    query: str
    matched_by: str
    name: str
    compute_capability: Capability | None
    architecture: str | None
    chip: str | None
    pci_ids: tuple[str, ...]
    last_driver_branch: str | None
    first_cuda: Version | None
    last_cuda: Version | None
    last_cudnn: Version | None
    ambiguous: bool
    notes: tuple[str, ...] = ()
    """What was assumed about the name."""
    candidates: tuple[SoldChip, ...]
    torch: str | None
    lacks: tuple[str, ...]
    advice: CardAdvice | None = None
    """How to use the card, with where that is known from."""
    math_libraries: dict[str, bool | None]
    official_wheels: dict[str, tuple[ServingWheel, ...]]
    old_wheels: tuple[OldShare, ...] = ()
    """Linux wheels before 1.10 with code for it. Nothing else is known of those releases."""
    programs: dict[str, dict[str, str | None]] = {}
    """By program and system, its newest release that runs on the card, as `rekindle plan --for` has it; None: none."""
    next: Command


def describe(query: str) -> CardAnswer:
    """What is true of the card that `query` names."""
    found = gpus.find_all([query])
    if len(found) > 1:
        message = f"`{query}` names {len(found)} cards"
        raise UsageError(message, hint="ask for one card at a time; `rekindle plan` takes several")
    match = found[0]
    capability = None if match.ambiguous else match.capabilities[0]
    facts = capabilities.facts(capability) if capability else None
    end = last_cudnn(capability) if capability else None
    last = toolkits.last_toolkit_for(capability) if capability else None
    listed = match.by is gpus.MatchedBy.CAPABILITY
    name = f"cards of compute capability {capability}" if listed else match.name
    places = _places(match)
    slowed = names.slowed(match.name)
    return CardAnswer(
        query=match.query,
        matched_by=match.by.value,
        name=name,
        compute_capability=capability,
        architecture=_single({gpu.architecture for gpu in match.gpus}),
        chip=_single({gpu.chip for gpu in match.gpus}),
        pci_ids=tuple(dict.fromkeys(pci for gpu in match.gpus for pci in gpu.pci_ids)),
        last_driver_branch=_single({gpu.last_driver_branch for gpu in match.gpus}),
        first_cuda=facts.first_cuda if facts else None,
        last_cuda=_last_cuda(facts, last),
        last_cudnn=end.release if end else None,
        ambiguous=match.ambiguous,
        notes=(*match.notes, *([slowed] if slowed else [])),
        candidates=tuple(codec.like(SoldChip, gpu, compute_capability=gpu.capability) for gpu in match.gpus),
        torch=facts.torch if facts else None,
        lacks=facts.lacks if facts else (),
        advice=advice(capability) if capability and not slowed else None,
        math_libraries={str(cuda): holds(math_serves(cuda, capability)) for cuda in _last_of_majors()}
        if capability
        else {},
        official_wheels={
            system: serving_wheels(capability, Platform(system, arch)) for system, arch in places.items() if capability
        },
        old_wheels=old_wheels.shares(capability) if capability and "windows" in places else (),
        programs=_programs(match, capability, places) if capability else {},
        next=rekindle("plan", "--gpu", capability.sm if capability and listed else _again(match)),
    )


def _places(match: gpus.Match) -> dict[str, str]:
    """The systems whose wheels may hold code for it, with their processor: a Jetson runs NVIDIA's own only."""
    if any(jetson.is_jetson(gpu.chip) for gpu in match.gpus):
        return {}
    return {"linux": "aarch64"} if jetson.only_on_arm(match.name) else dict.fromkeys(SYSTEMS, "x86_64")


def _programs(match: gpus.Match, capability: Capability, places: dict[str, str]) -> dict[str, dict[str, str | None]]:
    branch = _single({gpu.last_driver_branch for gpu in match.gpus})
    card = Card(name=match.name, capabilities=(capability,), last_driver_branch=branch)
    found: dict[str, dict[str, str | None]] = {}
    for system, arch in places.items():
        for answer in for_card(Situation(system=system, arch=arch, cards=(card,))):
            found.setdefault(answer.program, {})[system] = answer.version
    return found


def _again(match: gpus.Match) -> str:
    """The card as it was typed, without the quotes that a shell left on, where that finds it again."""
    return gpus.spelled(match.query.strip().strip("\"'"), match.capabilities)


def serving_wheels(capability: Capability, place: Platform) -> tuple[ServingWheel, ...]:
    """The official wheels for a card, newest first: those that the plan lets through, whatever the driver is."""
    card = Card(name=f"compute capability {capability}", capabilities=(capability,))
    situation = Situation(system=place.system, arch=place.arch, cards=(card,))
    window = window_of(situation)
    found = []
    for offer in offers.official(place):
        if offer.code and prebuilt.coverage(offer, capability) is Coverage.NO:
            continue  # no driver and no Python would make it serve, and nobody asks here for the reasons
        route, broken = prebuilt.consider(offer, situation, Wish(), window)
        if route is not None:
            found.append(_serving(offer, capability, broken, route.loses))
    return tuple(sorted(found, key=lambda row: (Version(row.torch), row.cuda), reverse=True))


def _serving(offer: Offer, capability: Capability, broken: list[Rejection], loses: tuple[str, ...]) -> ServingWheel:
    return codec.like(
        ServingWheel,
        offer,
        variant=offer.variant or "",
        cudnn_serves=holds(prebuilt.cudnn_inside(offer, capability)),
        by_jit=any(each.rule == prebuilt.BY_JIT for each in broken),
        loses=loses,
    )


def _last_of_majors() -> list[Version]:
    """The last toolkit of each major whose libraries were opened."""
    last = {row.version.major: row.version for row in toolkits.toolkits()}
    return [version for major, version in sorted(last.items()) if major >= 11]


def _last_cuda(facts: capabilities.CapabilityFacts | None, last: toolkits.Toolkit | None) -> Version | None:
    """The last toolkit that compiles for it; None while the newest one does."""
    if facts and facts.last_cuda:
        return facts.last_cuda
    return None if last is None or last.version == toolkits.toolkits()[-1].version else last.version


def _single(values: Iterable[T]) -> T | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None
