"""What is on the shelf, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence

from rekindle import console
from rekindle.knowledge.gpu_code import sums
from rekindle.wheels.shelf import Entry


def text(wheels: Sequence[Entry]) -> str:
    if not wheels:
        return "no such wheel is on the shelf"
    blocks = []
    for entry in wheels:
        rows = [
            ("GPU code", " ".join(sums(entry.code)) or "none"),
            ("CUDA", f"{entry.cuda or 'none'}, cuDNN {entry.cudnn or 'unknown'}" if entry.cuda else "none"),
            ("verified", entry.state.value + (f" on {', '.join(entry.checked_on)}" if entry.checked_on else "")),
            ("size", f"{entry.size / 1e6:.1f} MB"),
        ]
        table = console.table([(name, console.clean(value)) for name, value in rows], indent="  ")
        blocks.append(console.paint(console.clean(entry.file), "bold") + "\n" + table)
    return "\n\n".join(blocks)
