"""What each compute capability can and cannot do: its span of toolkits, drivers and cuDNN, and what will not work."""

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, cached, decided


class CapabilityFacts(Row, frozen=True, kw_only=True):
    """`last_…` None means: not ended yet."""

    capability: Capability
    first_cuda: Version
    torch: str
    lacks: tuple[str, ...]
    last_cuda: Version | None = None
    last_driver_branch: str | None = None
    last_cudnn: Version | None = None


class CardNeed(Row, frozen=True, kw_only=True):
    """Something a program may ask of a card, and the first capability that has it."""

    id: str
    name: str
    floor: Capability


class _Table(msgspec.Struct, frozen=True):
    limits: dict[str, str]
    need: tuple[CardNeed, ...]
    capability: tuple[CapabilityFacts, ...]


@cached
def _rows() -> dict[Capability, CapabilityFacts]:
    table = decided("capabilities", _Table)
    return {row.capability: _spelled(row, table.limits) for row in table.capability}


def _spelled(row: CapabilityFacts, limits: dict[str, str]) -> CapabilityFacts:
    return msgspec.structs.replace(row, lacks=tuple(limits[limit] for limit in row.lacks))


def facts(capability: Capability) -> CapabilityFacts | None:
    """None: a capability that the tables do not know."""
    return _rows().get(capability)


def known() -> tuple[Capability, ...]:
    return tuple(sorted(_rows()))


def needs() -> tuple[CardNeed, ...]:
    return decided("capabilities", _Table).need


def need(id: str) -> CardNeed:
    return next(row for row in needs() if row.id == id)
