"""What is on the shelf, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rekindle.core import console
from rekindle.core.command import pip
from rekindle.knowledge.gpu.gpu_code import sums
from rekindle.wheels.shelf.entry import ShelvedWheel


def text(wheels: Sequence[ShelvedWheel], cards: Sequence[str] = ()) -> str:
    if not wheels and cards:
        return f"no wheel on the shelf serves {console.clean(' and '.join(cards))}"
    if not wheels:
        return "the shelf is empty; put a wheel on it with `rekindle shelf add WHEEL`"
    blocks = []
    for entry in wheels:
        rows = [
            ("GPU code", " ".join(sums(entry.code)) or "none"),
            ("CUDA", f"{entry.cuda or 'none'}, cuDNN {entry.cudnn or 'unknown'}" if entry.cuda else "none"),
            ("verified", entry.state.value + (f" on {', '.join(entry.checked_on)}" if entry.checked_on else "")),
            ("signed", "yes" if entry.signed_by else "no"),
            ("size", console.size(entry.size)),
        ]
        if entry.yanked is not None:
            rows.append(("yanked", entry.yanked or "yes"))
        table = console.table([(name, console.clean(value)) for name, value in rows], indent="  ")
        blocks.append(console.paint(console.clean(entry.file), "bold") + "\n" + table)
    return "\n\n".join(blocks)


def install_command(folder: Path, entry: ShelvedWheel) -> str:
    """How pip takes this very wheel from the shelf: its whole version, or a newer one from elsewhere would win."""
    index = (folder.resolve() / "simple").as_uri()
    return str(pip("install", "--extra-index-url", index, f"{entry.project}=={entry.version}"))
