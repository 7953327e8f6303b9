"""The cards an environment is judged for: named ones, those of a recorded machine, or those of this one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.core import paths
from rekindle.inputs.driver import read_driver
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.capability import NamedCard
from rekindle.model.driver import Driver

if TYPE_CHECKING:
    from rekindle.machine.model import FoundGpu


def cards_for(
    names: Sequence[str], machine: Path | None, driver: str | None, *, system: str | None = None
) -> tuple[tuple[NamedCard, ...], Driver | None]:
    """Cards and driver. What is named wins over what is found."""
    from rekindle.machine import snapshot
    from rekindle.machine.gpu import cards as graphics
    from rekindle.machine.host import Host
    from rekindle.machine.probes import TIME_LIMIT
    from rekindle.machine.system.surroundings import wsl

    if machine is not None and not names:
        recorded = snapshot.load(machine)
        told = read_driver(driver, recorded.driver_system).driver if driver else recorded.driven_by
        return _found(recorded.gpus), told
    run = Host()
    counting = "windows" if (system or paths.system()) == "windows" or wsl(run) else "linux"
    told = read_driver(driver, counting).driver if driver else None
    if names:
        return tuple(dict.fromkeys(_named(match) for match in gpus.certain(names))), told
    here = graphics.probe(run, time_limit=TIME_LIMIT)
    found = Driver(here.driver.counted, counting) if here.driver and here.driver.counted else None
    return _found(here.gpus), told or found


def words(cards: Sequence[NamedCard]) -> tuple[str, ...]:
    """The cards as options of another of our commands."""
    return tuple(word for card in cards for word in ("--gpu", gpus.spelled(card.name, (card.capability,))))


def _named(match: gpus.Match) -> NamedCard:
    shown = match.capabilities[0].sm if match.by is gpus.MatchedBy.CAPABILITY else match.name
    return NamedCard(name=shown, capability=match.capabilities[0])


def _found(cards: Sequence[FoundGpu]) -> tuple[NamedCard, ...]:
    known = [
        NamedCard(name=card.name or str(card.pci_id), capability=card.capability) for card in cards if card.capability
    ]
    return tuple(dict.fromkeys(known))
