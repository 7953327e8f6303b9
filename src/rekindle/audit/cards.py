"""The cards an environment is judged for: named ones, those of a recorded machine, or those of this one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.audit.answer import Card
from rekindle.core.errors import UsageError
from rekindle.core.version import Version
from rekindle.knowledge.gpu import gpus

if TYPE_CHECKING:
    from rekindle.machine.model import FoundDriver, FoundGpu


def cards_for(
    names: Sequence[str], machine: Path | None, driver: str | None
) -> tuple[tuple[Card, ...], Version | None]:
    """Cards and driver. What is named wins over what is found."""
    wanted = Version(driver) if driver else None
    if names:
        return tuple(card for name in names for card in _named(name)), wanted
    from rekindle.machine import snapshot
    from rekindle.machine.gpu import cards as graphics
    from rekindle.machine.host import Host
    from rekindle.machine.probe import TIME_LIMIT

    if machine is not None:
        recorded = snapshot.load(machine)
        return _found(recorded.gpus), wanted or _version(recorded.driver)
    run = Host()
    here = graphics.probe(run, time_limit=TIME_LIMIT)
    return _found(here.gpus), wanted or _version(here.driver)


def _named(name: str) -> list[Card]:
    match = gpus.find(name)
    if match.ambiguous:
        chips = ", ".join(f"10de:{gpu.pci_ids[0]} ({gpu.capability})" for gpu in match.gpus if gpu.pci_ids)
        message = f"`{name}` was sold with different chips"
        raise UsageError(message, hint=f"name yours by its PCI id: {chips}")
    shown = match.gpus[0].name if match.by is not gpus.MatchedBy.CAPABILITY else match.capabilities[0].sm
    return [Card(name=shown, capability=match.capabilities[0])]


def _found(cards: Sequence[FoundGpu]) -> tuple[Card, ...]:
    known = [Card(name=card.name or str(card.pci_id), capability=card.capability) for card in cards if card.capability]
    return tuple(dict.fromkeys(known))


def _version(driver: FoundDriver | None) -> Version | None:
    return driver.version if driver else None
