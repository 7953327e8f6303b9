"""What speaks against a place, whatever PyTorch is chosen: its C library, Python, Windows, and what its cards lack."""

from __future__ import annotations

from rekindle.knowledge.gpu import capabilities
from rekindle.stack.rules import Candidate, Rejection, broken
from rekindle.stack.situation import Situation, Wish


def against(situation: Situation, wish: Wish) -> list[Rejection]:
    candidate = Candidate(name="any PyTorch")
    found: list[Rejection] = []
    if situation.release is not None:
        found.append(broken("place-old-windows", candidate, release=situation.release))
    if situation.system == "windows" and situation.machine == "aarch64":
        found.append(broken("place-windows-arm", candidate))
    if situation.libc == "musl":
        found.append(broken("place-musl", candidate))
    if situation.bits == 32:
        found.append(broken("place-32bit", candidate))
    return [*found, *_needs(situation, wish, candidate)]


def _needs(situation: Situation, wish: Wish, candidate: Candidate) -> list[Rejection]:
    """What is wished for and no card of that capability has."""
    return [
        broken("card-need", candidate, row=row, card=card.name, capability=capability, need=row.name, floor=row.floor)
        for row in map(capabilities.need, wish.needs)
        for card in situation.cards
        for capability in card.capabilities
        if capability < row.floor
    ]
