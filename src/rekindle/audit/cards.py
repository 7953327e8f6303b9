"""The cards an environment is judged for: named ones, those of a recorded machine, or those of this one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.audit.answer import AuditedCard
from rekindle.core.version import Version, typed
from rekindle.knowledge.gpu import gpus

if TYPE_CHECKING:
    from rekindle.machine.model import FoundDriver, FoundGpu


def cards_for(
    names: Sequence[str], machine: Path | None, driver: str | None
) -> tuple[tuple[AuditedCard, ...], Version | None]:
    """Cards and driver. What is named wins over what is found."""
    wanted = typed(driver, "`--driver`", "550.54.14") if driver else None
    if names:
        return tuple(dict.fromkeys(_named(match) for match in gpus.certain(names))), wanted
    from rekindle.machine import snapshot
    from rekindle.machine.gpu import cards as graphics
    from rekindle.machine.host import Host
    from rekindle.machine.probes import TIME_LIMIT

    if machine is not None:
        recorded = snapshot.load(machine)
        return _found(recorded.gpus), wanted or _version(recorded.driver)
    run = Host()
    here = graphics.probe(run, time_limit=TIME_LIMIT)
    return _found(here.gpus), wanted or _version(here.driver)


def words(cards: Sequence[AuditedCard]) -> tuple[str, ...]:
    """The cards as options of another of our commands."""
    return tuple(word for card in cards for word in ("--gpu", gpus.spelled(card.name, (card.capability,))))


def _named(match: gpus.Match) -> AuditedCard:
    shown = match.capabilities[0].sm if match.by is gpus.MatchedBy.CAPABILITY else match.name
    return AuditedCard(name=shown, capability=match.capabilities[0])


def _found(cards: Sequence[FoundGpu]) -> tuple[AuditedCard, ...]:
    known = [
        AuditedCard(name=card.name or str(card.pci_id), capability=card.capability) for card in cards if card.capability
    ]
    return tuple(dict.fromkeys(known))


def _version(driver: FoundDriver | None) -> Version | None:
    return driver.version if driver else None
