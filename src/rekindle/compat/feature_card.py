"""Can this card do it? bfloat16, `torch.compile`, NCCL, CUDA inside WSL: each from one capability on."""

from __future__ import annotations

from rekindle.knowledge.gpu import capabilities
from rekindle.model.card import Capability


def has(feature: str, card: Capability) -> bool:
    return card >= capabilities.need(feature).floor
