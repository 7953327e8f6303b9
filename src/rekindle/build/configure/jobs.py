"""How many compiles at a time, as one number for the whole build.

The heaviest files of PyTorch take 3 to 4 GB each; a machine with many cores and little memory must not start one per
core. A governor that knows each file does better; this is the floor below it.
"""

from __future__ import annotations

from rekindle.machine.model import Machine

_PER_JOB = {True: 3 * 1024**3, False: 3 * 1024**3 // 2}
"""Bytes for a compile with CUDA files in the build, and without."""


def computed(machine: Machine, *, cuda: bool) -> int | None:
    """As many as there are cores and room in memory for; None when neither is known, which leaves it to Ninja."""
    memory, cores = machine.memory.usable, machine.processor.cores
    fitting = [cores] if cores else []
    if memory:
        fitting.append(memory // _PER_JOB[cuda])
    return max(1, min(fitting)) if fitting else None
