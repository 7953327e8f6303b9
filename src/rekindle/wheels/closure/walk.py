"""What following links on Windows and on Linux has in common: what was found amiss, and the way that led there."""

from __future__ import annotations

import msgspec

from rekindle.formats.binary import Binary
from rekindle.wheels.closure.linkage import Missing, Skew, WrongMachine


class Walk:
    def __init__(self) -> None:
        self.missing: dict[str, Missing] = {}
        self.skew: list[Skew] = []
        self.machines: list[WrongMachine] = []
        self.parent: dict[str, str] = {}
        self.links = self.symbols = 0

    def note_machine(self, target: Binary, found: Binary) -> None:
        if all(item.file != target.name for item in self.machines):
            self.machines.append(
                WrongMachine(
                    file=target.name,
                    machine=target.machine or "an unknown machine",
                    wanted_by=found.name,
                    wanted=found.machine or "an unknown machine",
                )
            )

    def all_missing(self) -> tuple[Missing, ...]:
        """Each with the way that leads to it, now that all links are known."""
        return tuple(self._with_way(self.missing[name]) for name in sorted(self.missing))

    def _with_way(self, item: Missing) -> Missing:
        way = [item.wanted_by[0]]
        while way[0] in self.parent and self.parent[way[0]] not in way:
            way.insert(0, self.parent[way[0]])
        return msgspec.structs.replace(item, chain=(*way, item.library))


def torch_first(name: str) -> tuple[bool, str]:
    """Sorts the copy in torch/lib before all others."""
    return not name.startswith("torch/lib/"), name
