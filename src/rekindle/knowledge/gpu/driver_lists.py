"""From which driver on NVIDIA's own lists name a card: those in the releases of its open kernel modules."""

from __future__ import annotations

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, observed


class ListedCard(Row, frozen=True, kw_only=True):
    """A device that the oldest list lacks, and the first driver for Linux whose list has it."""

    pci_id: str
    name: str
    driver: Version


def listed_from(pci_id: str | None) -> ListedCard | None:
    """`10de:2d04` or `2d04`. None: the card is older than the lists, or newer than the data."""
    return _cards().get((pci_id or "").lower().removeprefix("10de:"))


@cached
def _cards() -> dict[str, ListedCard]:
    rows = observed("driver_lists", dict[str, tuple[ListedCard, ...]])["cards"]
    return {row.pci_id: row for row in rows}
