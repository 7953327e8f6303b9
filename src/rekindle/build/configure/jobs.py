"""How many compiles at a time, as one number for the whole build.

The heaviest files of PyTorch take 3 to 4 GB each; a machine with many cores and little memory must not start one per
core. A governor that knows each file does better; this is the floor below it.
"""

from __future__ import annotations

from rekindle.knowledge.builds import efforts
from rekindle.machine.model import Machine


def computed(machine: Machine, *, cuda: bool) -> int | None:
    """As many as there are cores and room in memory for; None when neither is known, which leaves it to Ninja."""
    return efforts.jobs(machine.processor.cores, machine.memory.usable, cuda=cuda)
