"""The cards an environment is judged for: named ones, those of a recorded machine, or those of this one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rekindle.core import paths
from rekindle.core.command import Command, new_environment, rekindle
from rekindle.inputs.system import read_system
from rekindle.knowledge.gpu import gpus
from rekindle.model.card import NamedCard
from rekindle.model.driver import Driver
from rekindle.model.environment import Environment

if TYPE_CHECKING:
    from rekindle.machine.model import FoundGpu
    from rekindle.stack.situation import Situation


class DrivenCards(NamedTuple):
    """The cards, what drives them, and whether it was looked for and is not there."""

    cards: tuple[NamedCard, ...]
    driver: Driver | None = None
    no_driver: bool = False


def cards_for(
    names: Sequence[str], machine: Path | None, driver: str | None, *, system: str | None = None
) -> DrivenCards:
    """Cards and driver. What is named wins over what is found; `system` as people write it: `wsl2`."""
    from rekindle.machine.host import Host
    from rekindle.machine.probe import TIME_LIMIT, graphics
    from rekindle.machine.system.surroundings import wsl

    run = Host()
    inside = "wsl2" if system in (None, "linux") and wsl(run) else system or paths.system()
    if machine is not None or names:
        from rekindle.stack.from_machine import situation_here

        place = situation_here(gpus=names, system=inside, driver=driver, snapshot=machine)
        return DrivenCards(cards_of(names, place), place.driven_by, place.no_driver)
    here = graphics(time_limit=TIME_LIMIT)
    counting = read_system(inside).driver_system
    told = None
    if driver:
        from rekindle.inputs.driver import read_driver

        told = read_driver(driver, counting).driver
    running = Driver(here.driver.counted, counting) if here.driver and here.driver.counted else None
    return DrivenCards(_found(here.gpus), told or running, not (told or running))


def cards_of(names: Sequence[str], place: Situation) -> tuple[NamedCard, ...]:
    """The cards that were named, which must be certain; else those of the place."""
    named = tuple(dict.fromkeys(_named(match) for match in gpus.certain(names)))
    return named or place.named_cards


def words(cards: Sequence[NamedCard]) -> tuple[str, ...]:
    """The cards as options of another of our commands."""
    return tuple(word for card in cards for word in ("--gpu", gpus.spelled(card.name, (card.capability,))))


def install_command(
    environment: Environment, cards: Sequence[NamedCard], driver: Driver | None = None, *more: str
) -> Command:
    """The command that puts a torch for these cards into this environment, with what belongs to that torch."""
    told = ("--driver", str(driver.version)) if driver else ()
    # `install` leaves the system's packages, and those of a user beside them, as they are.
    theirs = environment.kind == "system"
    note = f"an environment of your own: {new_environment('ENV', environment.os)}" if theirs else ""
    folder = "ENV" if theirs else environment.root
    return rekindle("install", folder, *words(cards), *told, *more, system=environment.os, note=note)


def _named(match: gpus.Match) -> NamedCard:
    shown = match.capabilities[0].sm if match.by is gpus.MatchedBy.CAPABILITY else match.name
    return NamedCard(name=shown, capability=match.capabilities[0])


def _found(cards: Sequence[FoundGpu]) -> tuple[NamedCard, ...]:
    known = [
        NamedCard(name=card.name or str(card.pci_id), capability=card.capability) for card in cards if card.capability
    ]
    return tuple(dict.fromkeys(known))
