"""Chips and the capability each of them has."""

from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, cached, observed


class Chip(Row, frozen=True, kw_only=True):
    name: str
    architecture: str
    capability: Capability | None
    last_driver_branch: str | None
    uncertain: bool = False


@cached
def chips() -> dict[str, Chip]:
    return {chip.name: chip for chip in observed("chips", dict[str, tuple[Chip, ...]])["chips"]}


@cached
def architecture(capability: Capability) -> str | None:
    """The architecture's name for a capability: 3.5 is Kepler."""
    for chip in chips().values():
        if chip.capability == capability:
            return chip.architecture
    return None
