"""Does this toolkit compile for this card?"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.errors import UnknownName
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.tables import cached
from rekindle.model.card import Capability, Target

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
        known = [target.capability for target in toolkits.toolkit(cuda).plain]
    except UnknownName:
        known = []
    named = sorted({_named(card, known) for card in cards})
    ptx = jit and bool(named) and named[-1].major == max((each.major for each in known), default=0)
    return ";".join(map(str, named)) + ("+PTX" if ptx else "")


def _named(card: Capability, known: Collection[Capability]) -> Capability:
    """What nvcc is asked for: the card itself, or the nearest below it that the toolkit knows (8.6 for an RTX 4090 with
    CUDA 11.4). The boards of an Arm processor have code of their own."""
    below = [each for each in known if each.major == card.major and each <= card and each not in _on_boards()]
    return card if card in known or not below else max(below)


@cached
def _on_boards() -> frozenset[Capability]:
    every = gpus.gpus()
    return frozenset(each.capability for each in every if each.integrated) - {
        each.capability for each in every if not each.integrated
    }


@cached
def _able(cuda: Version, card: Capability) -> bool:
    return toolkits.toolkit(cuda).compiles_for(card)


@cached
def able_toolkits(card: Capability) -> tuple[Version, ...]:
    """The toolkits of the tables that compile for a card, oldest first."""
    return tuple(row.version for row in toolkits.toolkits() if row.compiles_for(card))


@cached
def _first(card: Capability) -> Version:
    """The first that knows the card itself; where none does, the first whose code runs on it."""
    own = (row.version for row in toolkits.toolkits() if row.has_target(card))
    return next(own, able_toolkits(card)[0])


def _spoken(card: Capability) -> str:
    """`11.8 is the last that can`, `12.8 is the first that can`, or that none of the tables can."""
    able = able_toolkits(card)
    if not able:
        return f"no toolkit since {toolkits.toolkits()[0].version} can"
    ended = able[-1] != toolkits.toolkits()[-1].version
    return f"{able[-1]} is the last that can" if ended else f"{_first(card)} is the first that can"


def _others(card: Capability) -> tuple[Alternative, ...]:
    able = able_toolkits(card)
    if not able:
        return ()
    return (Alternative(what="toolkit", value=str(able[-1]), text=f"use CUDA {able[-1]}"),)
