"""Does this toolkit compile for this card?"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.errors import UnknownName
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu.capability import Capability, Target
from rekindle.knowledge.tables import cached

_SOURCE = "ptxas --help and nvcc --list-gpu-arch of the toolkits"


def compiles(cuda: Version, card: Capability, name: str, *, own: Iterable[Target] = ()) -> Judgement:
    """`name` is what the card is called in the sentence; `own` are the toolkit's targets where it could be asked."""
    told = [target for target in own if not target.suffix and not target.ptx]
    if told:
        able = any(each.capability.major == card.major and each.capability.minor <= card.minor for each in told)
    else:
        try:
            able = _able(cuda, card)
        except UnknownName:
            return Unknown(missing=f"what CUDA {cuda.major_minor} compiles for is not known")
    if able:
        return Fits()
    sentence = f"CUDA {cuda.major_minor} cannot compile for {name}: {_spoken(card)}"
    return Clash(sentence=sentence, source=_SOURCE, changes=_others(card))


def arch_list(cards: Collection[Capability], cuda: Version, *, jit: bool) -> str:
    """`8.6;12.0+PTX`: PTX goes with the newest card where it can be of use, that is

    - the driver compiles this toolkit's PTX (`jit`; by minor-version compatibility alone it does not), and
    - the card is of the newest generation that the toolkit knows: a card that comes after it is then served by JIT.
      After an older one (Kepler, Pascal) every newer card has wheels with native code, and PTX would only cost time.
    """
    try:
        frontier = max(target.capability.major for target in toolkits.toolkit(cuda).plain)
    except UnknownName:
        frontier = 0
    newest = max(cards, default=None)
    ptx = jit and newest is not None and newest.major == frontier
    return ";".join(f"{card}{'+PTX' if ptx and card == newest else ''}" for card in sorted(cards))


@cached
def _able(cuda: Version, card: Capability) -> bool:
    return toolkits.toolkit(cuda).compiles_for(card)


@cached
def able_toolkits(card: Capability) -> tuple[Version, ...]:
    """The toolkits of the tables that compile for a card, oldest first."""
    return tuple(row.version for row in toolkits.toolkits() if row.compiles_for(card))


def _spoken(card: Capability) -> str:
    """`11.8 is the last that can`, `12.8 is the first that can`, or that none of the tables can."""
    able = able_toolkits(card)
    if not able:
        return f"no toolkit since {toolkits.toolkits()[0].version} can"
    ended = able[-1] != toolkits.toolkits()[-1].version
    return f"{able[-1]} is the last that can" if ended else f"{able[0]} is the first that can"


def _others(card: Capability) -> tuple[Alternative, ...]:
    able = able_toolkits(card)
    if not able:
        return ()
    return (Alternative(what="toolkit", value=str(able[-1]), text=f"use CUDA {able[-1]}"),)
