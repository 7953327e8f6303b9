"""Everything the tables know of one card, put together: what `rekindle gpu` answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.cuda import cudnn, toolkits
from rekindle.knowledge.gpu import capabilities, gpus
from rekindle.knowledge.gpu.capability import Capability, Coverage, Runs, runs
from rekindle.knowledge.tables import Evidence, Row, cached, observed
from rekindle.knowledge.torch import releases

T = TypeVar("T")
SYSTEMS = ("windows", "linux")
_LAST_OF_MAJOR = (Version("11.8"), Version("12.9"), Version("13.4"))


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
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
    """An official wheel whose list of architectures reaches the card. `cudnn_serves` None: not known."""

    torch: str
    variant: str
    cuda: Version
    cudnn: Version | None
    cudnn_serves: bool | None
    by_jit: bool
    experimental: bool
    evidence: Evidence


class _Seen(Row, frozen=True, kw_only=True):
    """Of an official wheel that was opened, only what is needed here; the rest of its row is not even decoded."""

    version: str
    system: str
    machine: str
    cuda: Version | None
    coverage: dict[str, Coverage]


class CardAnswer(msgspec.Struct, frozen=True, kw_only=True):
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
    candidates: tuple[Candidate, ...]
    torch: str | None
    lacks: tuple[str, ...]
    math_libraries: dict[str, bool | None]
    official_wheels: dict[str, tuple[ServingWheel, ...]]
    next: str


def describe(query: str) -> CardAnswer:
    """What is true of the card that `query` names."""
    match = gpus.find(query)
    capability = None if match.ambiguous else match.capabilities[0]
    facts = capabilities.facts(capability) if capability else None
    last = toolkits.last_toolkit_for(capability) if capability else None
    listed = match.by is gpus.MatchedBy.CAPABILITY
    name = (
        f"cards of compute capability {capability}"
        if listed
        else _single({gpu.name for gpu in match.gpus}) or match.query
    )
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
        last_cudnn=facts.last_cudnn if facts else None,
        ambiguous=match.ambiguous,
        candidates=tuple(_candidate(gpu) for gpu in match.gpus),
        torch=facts.torch if facts else None,
        lacks=facts.lacks if facts else (),
        math_libraries={str(cuda): cudnn.math_serves(cuda, capability) for cuda in _LAST_OF_MAJOR}
        if capability
        else {},
        official_wheels={system: serving_wheels(capability, system) for system in SYSTEMS} if capability else {},
        next=f"rekindle plan --gpu {_quoted(capability.sm if capability and listed else match.query)}",
    )


def serving_wheels(capability: Capability, system: str) -> tuple[ServingWheel, ...]:
    """The official wheels with code for a card, newest first. Whether the driver runs them is the plan's question."""
    found = []
    for release in reversed(releases.torch_releases()):
        for variant in sorted(release.variants, key=lambda row: row.cuda, reverse=True):
            seen = _seen().get((release.newest, str(variant.cuda), system))
            how = _how(variant, capability, system) if seen is None else _as_seen(seen, capability)
            if how is not Runs.NO:
                evidence = variant.evidence if seen is None else seen.evidence
                found.append(_serving(release, variant, capability, how, evidence))
    return tuple(found)


@cached
def _seen() -> dict[tuple[str, str, str], _Seen]:
    rows = observed("torch_wheels", dict[str, tuple[_Seen, ...]])["wheels"]
    return {(row.version, str(row.cuda), row.system): row for row in rows if row.machine == "x86_64"}


def _as_seen(seen: _Seen, capability: Capability) -> Runs:
    """What was read off the wheel wins over what its build script says. PARTIAL is not served."""
    return Runs.NATIVE if seen.coverage.get(str(capability)) is Coverage.SERVES else Runs.NO


def _how(variant: releases.Variant, capability: Capability, system: str) -> Runs:
    answers = {runs(target, capability) for target in variant.targets(system) or ()}
    if Runs.NATIVE in answers:
        return Runs.NATIVE
    return Runs.JIT_UNVERIFIED if Runs.JIT_UNVERIFIED in answers else Runs.NO


def _serving(
    release: releases.TorchRelease, variant: releases.Variant, capability: Capability, how: Runs, evidence: Evidence
) -> ServingWheel:
    return ServingWheel(
        torch=release.newest,
        variant=variant.name,
        cuda=variant.cuda,
        cudnn=variant.cudnn,
        cudnn_serves=cudnn.serves(variant.cudnn, capability, cuda_major=variant.cuda.major) if variant.cudnn else None,
        by_jit=how is not Runs.NATIVE,
        experimental=variant.experimental,
        evidence=evidence,
    )


def _last_cuda(facts: capabilities.CapabilityFacts | None, last: toolkits.Toolkit | None) -> Version | None:
    """The last toolkit that compiles for it; None while the newest one does."""
    if facts and facts.last_cuda:
        return facts.last_cuda
    return None if last is None or last.version == toolkits.toolkits()[-1].version else last.version


def _candidate(gpu: gpus.Gpu) -> Candidate:
    return Candidate(
        name=gpu.name,
        compute_capability=gpu.capability,
        architecture=gpu.architecture,
        chip=gpu.chip,
        pci_ids=gpu.pci_ids,
        last_driver_branch=gpu.last_driver_branch,
        source=gpu.source,
        evidence=gpu.evidence,
    )


def _single(values: Iterable[T]) -> T | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text or "&" in text else text
