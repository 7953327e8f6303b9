"""The situation of a machine that was looked at, or of a snapshot of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rekindle.core import paths
from rekindle.core.console import clean
from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.inputs.driver import read_driver
from rekindle.inputs.system import old_windows, read_processor, read_system
from rekindle.inputs.versions import read_python
from rekindle.knowledge.gpu.gpus import find
from rekindle.knowledge.gpu.names import is_virtual
from rekindle.stack.situation import (
    Card,
    Installed,
    Situation,
    by_chips,
    cards_named,
    machine_of,
    situation_from_options,
)

if TYPE_CHECKING:
    from rekindle.machine.model import FoundGpu, Machine

_ARM_BOARD = "Linux is assumed: this GPU comes on a board with an Arm processor, and its software is for Linux"


def situation_of(
    machine: Machine,
    *,
    gpus: Sequence[str] = (),
    driver: str | None = None,
    python: str | None = None,
) -> Situation:
    """What the resolver needs of a machine. `gpus`, `driver` and `python` stand in for what it has."""
    found = machine.driver.counted if machine.driver else None
    cards = cards_named(gpus, undecided=True) if gpus else _cards(machine)
    typed = read_driver(driver, machine.driver_system) if driver is not None else None
    # The driver of this machine says nothing of a card that is only named, unless it has such cards itself.
    running = None if gpus and not machine.gpus else found
    chosen = read_python(python) if python is not None else None
    here = machine.python
    return Situation(
        system=machine.os,
        arch=machine.arch,
        cards=cards,
        driver=typed.driver.version if typed else running,
        driver_note=typed.note if typed else None,
        no_driver=typed is None and found is None and bool(machine.gpus) and not machine.could_not_read("driver"),
        python=chosen.version if chosen else here.minor if here else None,
        bits=chosen.bits if chosen else here.bits if here else None,
        release=old_windows(machine.surroundings.release or ""),
        system_name=machine.surroundings.release if machine.python is None and machine.os == "linux" else None,
        glibc=machine.surroundings.glibc,
        libc=machine.surroundings.libc,
        jetpack=machine.surroundings.l4t,
        distribution=machine.surroundings.distribution,
        cpu=machine.processor.flags if machine.processor.flags_known else None,
        installed=_installed(machine),
        conda=machine.python.kind == "conda" if machine.python else None,
        wsl=machine.surroundings.wsl is not None,
        cores=machine.processor.cores,
        physical_cores=machine.processor.physical,
        memory=machine.memory.usable,
        disk=next((disk.free for disk in machine.disks if disk.role == "here"), None),
        toolkits=tuple(each.version.major_minor for each in machine.toolkits if each.version and each.whole),
        toolsets=tuple(each.version for each in machine.toolsets if each.x64),
        gcc=tuple(sorted({each.version.major for each in machine.compilers if each.kind == "gcc"})),
        cudnns=tuple(each.version for each in machine.cudnns if each.version and not each.missing),
        ninja=_program(machine, "ninja"),
        here=True,
    )


def _cards(machine: Machine) -> tuple[Card, ...]:
    """The cards that count, equal ones as one of that number: an embedded or unknown one without a capability is left
    out, and the doctor says so."""
    found = Counter(card for gpu in machine.gpus if (card := _card(gpu)) is not None)
    return tuple(msgspec.structs.replace(card, count=number) for card, number in found.items())


def _card(gpu: FoundGpu) -> Card | None:
    capabilities = (gpu.capability,) if gpu.capability else gpu.candidates
    if not capabilities:
        return None
    # A snapshot is somebody else's text: its names reach sentences and commands, and must not drive a terminal.
    name = clean(gpu.name or gpu.pci_id or "") or "a card without a name"
    tcc = gpu.driver_model == "TCC"
    return Card(name=name, capabilities=capabilities, **_by_name(name), tcc=tcc)


def _by_name(name: str) -> dict[str, Any]:
    try:
        match = find(name)
    except RekindleError:
        return {"guest": is_virtual(name)}
    return {**by_chips(match.gpus), "guest": match.guest}


def _installed(machine: Machine) -> Installed | None:
    torch = machine.torch
    if torch is None:
        return None
    numpy = machine.python.packages.get("numpy") if machine.python else None
    return Installed(
        version=torch.version,
        cuda=torch.cuda,
        targets=torch.targets or None,
        partial=torch.partial,
        numpy=Version.find(numpy) if numpy else None,
    )


def _program(machine: Machine, name: str) -> Version | None:
    program = machine.program(name)
    return program.version if program else None


def situation_here(
    *,
    gpus: Sequence[str] = (),
    system: str | None = None,
    machine: str | None = None,
    driver: str | None = None,
    python: str | None = None,
    snapshot: Path | None = None,
) -> Situation:
    """The situation of a command line: named cards, a recorded machine, or this computer when nothing is named."""
    if snapshot is not None:
        from rekindle.machine.snapshot import load

        found = situation_of(load(snapshot), gpus=gpus, driver=driver, python=python)
        return msgspec.structs.replace(found, recorded=str(snapshot))
    own = paths.system()
    elsewhere = system is not None and read_system(system).system != own
    if gpus or elsewhere or machine is not None:
        place = system or _system_of(gpus, own)
        arch = read_processor(machine) if machine is not None else None
        found = situation_from_options(gpus, system=place, machine=arch, driver=driver, python=python)
        if system is None and place != own:
            return msgspec.structs.replace(found, arch_note=_ARM_BOARD)
        return found if machine is not None else _assumed(found)
    from rekindle.machine.snapshot import here

    return situation_of(here(), driver=driver, python=python)


def _system_of(gpus: Sequence[str], own: str) -> str:
    """A Jetson or a DGX Spark that is asked about from a Windows computer runs Linux all the same."""
    return "linux" if machine_of(cards_named(gpus, undecided=True)) == "aarch64" else own


def _assumed(found: Situation) -> Situation:
    """A card that was only named: say which processor is assumed where this computer has another one."""
    here = paths.architecture()
    if here == found.arch or found.arch != "x86_64":
        return found
    note = f"for a named card x86_64 is assumed, though this computer is {here}: `--arch {here}` changes it"
    return msgspec.structs.replace(found, arch_note=note)
