"""What each compute capability can and cannot do: its span of toolkits, drivers and cuDNN, and what will not work."""

from __future__ import annotations

from rekindle.knowledge.capability import Capability
from rekindle.knowledge.tables import Row, cached, decided
from rekindle.version import Version


class CapabilityFacts(Row, frozen=True, kw_only=True):
    """`last_…` None means: not ended yet."""

    capability: Capability
    first_cuda: Version
    torch: str
    lacks: tuple[str, ...]
    last_cuda: Version | None = None
    last_driver_branch: str | None = None
    last_cudnn: Version | None = None


@cached
def _rows() -> dict[Capability, CapabilityFacts]:
    rows = decided("capabilities", dict[str, tuple[CapabilityFacts, ...]])["capability"]
    return {row.capability: row for row in rows}


def facts(capability: Capability) -> CapabilityFacts | None:
    """None: a capability that the tables do not know."""
    return _rows().get(capability)


def known() -> tuple[Capability, ...]:
    return tuple(sorted(_rows()))
