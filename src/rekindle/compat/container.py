"""Does a container, or a process, get to see the cards of its machine, and has an image code for them?"""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.compat.judgement import Clash, Fits, Judgement, Unknown
from rekindle.compat.toolkit_card import able_toolkits
from rekindle.core.pattern import late
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.torch.projects import ContainerImage
from rekindle.knowledge.torch.releases import torch_release
from rekindle.model.card import Capability

_GIVES = late(r"--gpus\b|--privileged\b|--runtime(?:=nvidia)?\Z|.*\bnvidia\.com/gpu|.*/dev/(?:nvidia|dri|kfd|dxg)")
_APPTAINER = late(r"--nv(?:ccli)?\Z|--rocm\Z")
# A variable that is a word of its own may hold options; a folder or a port in one does not.
_OPEN = late(r"\$\{?(?!PWD\b|HOME\b|USER\b)\w+\}?|\$\((?!pwd\)|id\b).*|\$@")
_MANUAL = "Docker's manual: access to an NVIDIA GPU; NVIDIA container toolkit"
_NUMBER = late(r"\d{1,3}\Z|(?:GPU|MIG)-[\w/-]+\Z")


def gets_cards(words: Sequence[str]) -> Judgement:
    """`words` of a `docker run`, `podman run` or `singularity run`: does it hand over the cards?"""
    apptainer = words[0] in ("singularity", "apptainer")
    if any((_APPTAINER if apptainer else _GIVES).match(word) for word in words):
        return Fits()
    if any(_OPEN.fullmatch(word) for word in words):
        return Unknown(missing="what its variables hold")
    option, manual = ("--nv", "Apptainer's manual: GPU support") if apptainer else ("--gpus", _MANUAL)
    return Clash(
        sentence=f"`{' '.join(words[:2])}` without `{option}` shows the container no card",
        source=manual,
    )


def serves(image: ContainerImage, card: Capability) -> bool:
    """Whether it should have code for the card: by the Linux wheel of its line, or by NVIDIA's word."""
    if image.variant is None:
        return image.oldest is not None and image.oldest <= card and image.cuda in able_toolkits(card)
    variant = torch_release(image.torch or "").variant(image.variant or "")
    return any(runs(target, card) is not Runs.NO for target in (variant.targets("linux") if variant else None) or ())


def shows_cards(value: str) -> Judgement:
    """CUDA_VISIBLE_DEVICES: CUDA reads numbers and UUIDs up to the first word that is neither."""
    first = value.strip("\"' ").split(",")[0].strip()
    if "$" in first or "%" in first:
        return Unknown(missing="what CUDA_VISIBLE_DEVICES holds")
    if _NUMBER.match(first):
        return Fits()
    return Clash(
        sentence=f"CUDA_VISIBLE_DEVICES={value} hides every card: CUDA takes numbers (`0,1`) and UUIDs only",
        source="CUDA C++ programming guide: CUDA environment variables",
    )
