"""What the caller told: the cards and their place, and what the script itself does not say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core.version import Version
from rekindle.inputs.driver import read_driver
from rekindle.inputs.system import read_system
from rekindle.inputs.torch import read_torch
from rekindle.knowledge.gpu.gpus import capabilities_of
from rekindle.model.card import Capability
from rekindle.stack.situation import Card, Situation, situation_from_options


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`system` None: that of the script. `place` is the machine it is for, as far as it was told."""

    gpus: tuple[Capability, ...] = ()
    torch: Version | None = None
    system: str | None = None
    place: Situation | None = None

    def driven_by(self, text: str) -> Asked:
        """With the driver that the script installs."""
        if self.place is None or self.place.driver_system != "linux":
            return self
        typed = read_driver(text, "linux")
        place = msgspec.structs.replace(
            self.place, driver=typed.driver.version, driver_note=typed.note, no_driver=False
        )
        return msgspec.structs.replace(self, place=place)

    def situation(self, system: str, *, python: str | None, glibc: Version | None, image: bool) -> Situation:
        """Where the script makes an environment. In an image the C library is the image's, not the machine's."""
        cards = tuple(Card(name=f"a GPU of capability {each}", capabilities=(each,)) for each in self.gpus)
        base = self.place or Situation(system=system, cards=cards)
        python = python or base.python
        if image or system != base.system:
            inside = base.in_image(python=python, glibc=glibc)
        else:
            inside = msgspec.structs.replace(base, python=python, glibc=glibc or base.glibc, installed=None, here=False)
        # A Linux on a computer with Windows runs in WSL, on the driver of Windows.
        wsl = base.wsl or (system, base.system) == ("linux", "windows")
        return msgspec.structs.replace(inside, system=system, cards=base.cards or cards, wsl=wsl)


def question_from_options(
    gpus: Sequence[str] = (),
    *,
    torch: str | None = None,
    system: str | None = None,
    driver: str | None = None,
    python: str | None = None,
    machine: Path | None = None,
) -> Asked:
    """What was typed, as values. A snapshot stands for the machine that the script is for."""
    release = Version(read_torch(torch).release) if torch is not None else None
    meant = read_system(system).system if system is not None else None
    if machine is not None:
        from rekindle.machine import snapshot as snapshots
        from rekindle.stack.from_machine import situation_of

        place = situation_of(snapshots.load(machine), gpus=gpus, driver=driver, python=python)
        return Asked(gpus=place.capabilities, torch=release, system=meant, place=place)
    place = situation_from_options(gpus, system=system or "linux", driver=driver, python=python)
    return Asked(gpus=capabilities_of(gpus), torch=release, system=meant, place=place)
