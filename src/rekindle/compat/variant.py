"""May a wheel variant promise what its label says? Judged by the GPU code and the CUDA that were read from its files.

An installer takes a variant by its label alone (PEP 817): one that says `61_real` goes to a card of 6.1 and to every
later one of that major, whatever is inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rekindle.compat.driver_cuda import DriverNeed, need, newest_full
from rekindle.compat.gpu_code import counted, own, served
from rekindle.compat.judgement import Clash, Judgement, Unknown
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.gpu.gpu_code import GpuCode, sums
from rekindle.knowledge.torch.wheel_platforms import variant_providers
from rekindle.model.card import Capability, Target
from rekindle.model.driver import Driver
from rekindle.model.wheel import WheelVariant

NVIDIA, ARCHITECTURE, LEAST_CUDA, MOST_CUDA = (
    "nvidia", "sm_arch", "cuda_version_lower_bound", "cuda_version_upper_bound",
)  # fmt: skip
_SOURCE = "its own GPU code"
_NULL = "null"
_VALUE = late(r"(\d{1,2})(\d)_(real|virtual)\Z")
_NUMBER = late(r"\d{1,3}(?:\.\d{1,3})?\Z")


def honest(codes: Sequence[GpuCode], cuda: Version | None) -> dict[str, tuple[str, ...]]:
    """All that a label may promise of this code, by feature."""
    targets = sorted(target for name in sums(own(codes)) if not (target := Target.parse(name)).suffix)
    values = tuple(value for value in map(spelled, targets) if _true(value, codes))
    least = _least(cuda, values)
    return {ARCHITECTURE: values} | ({LEAST_CUDA: (str(least),)} if least else {}) if values else {}


def spelled(target: Target) -> str:
    """`61_real` of `sm_61`, `90_virtual` of `compute_90`."""
    capability = target.capability
    return f"{capability.major}{capability.minor}_{'virtual' if target.ptx else 'real'}"


def judged(variant: WheelVariant, codes: Sequence[GpuCode], cuda: Version | None) -> Iterator[Judgement]:
    """What of a label does not hold, or could not be judged."""
    said = variant.properties.get(NVIDIA, {})
    inside = ", ".join(sums(own(codes))) or "none"
    for value in said.get(ARCHITECTURE, ()):
        if not _true(value, codes):
            yield Clash(sentence=f"its label promises `{value}`, and its GPU code is {inside}", source=_SOURCE)
    yield from _providers(variant)
    if own(codes) and not said.get(ARCHITECTURE) and variant.label != _NULL:
        sentence = f"its label names no architecture, and its GPU code is {inside}: it would go to every card"
        yield Clash(sentence=sentence, source=_SOURCE)
    yield from _driver(said, cuda) if own(codes) and variant.properties else ()
    for space, features in variant.properties.items():
        strange = [name for name in features if space != NVIDIA or name not in (ARCHITECTURE, LEAST_CUDA, MOST_CUDA)]
        for feature in strange:
            yield Unknown(missing=f"what its label says of `{space} :: {feature}` was not judged")


def _providers(variant: WheelVariant) -> Iterator[Judgement]:
    """Who tells what a computer has is code that an installer fetches and runs."""
    for space, told in variant.providers.items():
        needs = [str(each) for each in told.get("requires") or ()]
        names = {re.split(r"[^\w.-]", each.strip(), maxsplit=1)[0].lower().replace("_", "-") for each in needs}
        module = str(told.get("plugin-api") or "").partition(":")[0].partition(".")[0]
        known = names | {module.replace("_", "-")} <= {"", *(row.name for row in variant_providers())}
        if any("@" in each for each in needs) or (space == NVIDIA and not known):
            sentence = f"its label lets installers run `{module or ', '.join(needs)}` to ask for `{space}`"
            yield Clash(sentence=sentence, source=_SOURCE)
        elif not known or space not in variant.properties:
            yield Unknown(missing=f"installers run what its label names to ask for `{space}`, which was not judged")


def _driver(said: dict[str, tuple[str, ...]], cuda: Version | None) -> Iterator[Judgement]:
    least = _least(cuda, said.get(ARCHITECTURE, ()))
    stated = said.get(LEAST_CUDA, ())
    if least is None or not stated or not all(map(_NUMBER.match, stated)):
        why = "its label names no driver" if not stated else "which driver it needs is not known"
        yield Unknown(missing=f"{why}: an installer may take it where it cannot run")
    elif min(map(Version, stated)) < least:
        wrong = min(map(Version, stated))
        yield Clash(
            sentence=f"its label asks for a driver of CUDA {wrong}, and it needs that of {least}", source=_SOURCE
        )


def _least(cuda: Version | None, values: Sequence[str]) -> Version | None:
    """The CUDA that the oldest driver reports which runs this. PTX needs that of its own CUDA."""
    wanted = need(cuda, "linux") if cuda else None
    if not isinstance(wanted, DriverNeed) or cuda is None:
        return None
    if any(value.endswith("virtual") for value in values):
        return cuda.major_minor
    return newest_full(Driver(wanted.floor, "linux")) or cuda.major_minor


def _true(value: str, codes: Sequence[GpuCode]) -> bool:
    match = _VALUE.match(value)
    mine = own(codes)
    if match is None or not mine:
        return False
    card = Capability(int(match[1]), int(match[2]))
    if match[3] == "real":
        answers = [served(code, card) for code in mine]
        return all(each.coverage is Coverage.SERVES and not each.jit for each in answers)
    return all(
        any(target.ptx and not target.suffix and target.capability <= card for target in group.targets)
        for code in mine
        for group in counted(code)
    )
