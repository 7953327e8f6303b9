"""The situation of a machine that was looked at, or of a snapshot of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rekindle.core import paths
from rekindle.core.console import clean
from rekindle.core.version import Version
from rekindle.machine import snapshot as snapshots
from rekindle.machine.model import FoundGpu, FoundTorch, Machine
from rekindle.stack.situation import Card, Installed, Situation, cards_named, named, python_of, version_of


def situation_of(
    machine: Machine,
    *,
    gpus: Sequence[str] = (),
    driver: str | None = None,
    python: str | None = None,
) -> Situation:
    """What the resolver needs of a machine. `gpus`, `driver` and `python` stand in for what it has."""
    found = machine.driver.version if machine.driver else None
    return Situation(
        system=machine.os,
        machine=machine.arch,
        cards=cards_named(gpus) if gpus else _cards(machine),
        # The driver of this machine says nothing of a card that is only named, unless it has such cards itself.
        driver=version_of(driver, "--driver") or (None if gpus and not machine.gpus else found),
        python=python_of(python) or _python(machine),
        glibc=machine.surroundings.glibc,
        cpu=machine.processor.flags if machine.processor.flags_known else None,
        installed=_installed(machine.torch),
        conda=machine.python.kind == "conda" if machine.python else None,
        wsl=machine.surroundings.wsl is not None,
        cores=machine.processor.cores,
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
    """The cards that count: an embedded or unknown one without a capability is left out, and the doctor says so."""
    return tuple(card for gpu in machine.gpus if (card := _card(gpu)) is not None)


def _card(gpu: FoundGpu) -> Card | None:
    capabilities = (gpu.capability,) if gpu.capability else gpu.candidates
    if not capabilities:
        return None
    # A snapshot is somebody else's text: its names reach sentences and commands, and must not drive a terminal.
    name = clean(gpu.name or gpu.pci_id or "") or "a card without a name"
    return Card(name=name, capabilities=capabilities)


def _installed(torch: FoundTorch | None) -> Installed | None:
    if torch is None:
        return None
    return Installed(
        version=torch.version,
        cuda=torch.cuda,
        targets=torch.targets or None,
        partial=torch.partial,
    )


def _python(machine: Machine) -> str | None:
    version = machine.python.version if machine.python else None
    return f"{version.major}.{version.minor}" if version else None


def _program(machine: Machine, name: str) -> Version | None:
    program = machine.program(name)
    return program.version if program else None


def asked(
    *,
    gpus: Sequence[str] = (),
    system: str | None = None,
    driver: str | None = None,
    python: str | None = None,
    snapshot: Path | None = None,
) -> Situation:
    """The situation of a command line: named cards, a recorded machine, or this computer when nothing is named."""
    if snapshot is not None:
        return situation_of(snapshots.load(snapshot), gpus=gpus, driver=driver, python=python)
    own = paths.system()
    if gpus or (system is not None and system != own):
        return named(gpus, system=system or own, driver=driver, python=python)
    return situation_of(snapshots.here(), driver=driver, python=python)
