"""Can this card do it? bfloat16, `torch.compile`, NCCL, CUDA inside WSL: each from one capability on."""

from __future__ import annotations

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.capability import Capability


def has(feature: str, card: Capability) -> bool:
    return card >= capabilities.need(feature).floor


def supports(feature: str, card: Capability, name: str) -> Judgement:
    """`name` is what the card is called in the sentence."""
    row = capabilities.need(feature)
    if card >= row.floor:
        return Fits()
    change = Alternative(what="card", value=str(row.floor), text=f"use a card of {row.floor} or newer")
    sentence = f"{name} ({card}) cannot do {row.name}: it needs compute capability {row.floor}"
    return Clash(sentence=sentence, source=row.source, changes=(change,))
