"""A repair as a person reads it."""

from __future__ import annotations

from rekindle.core import console
from rekindle.wheels.repair.repair import Added, Repair


def text(done: Repair) -> str:
    would = "would be " if done.output is None else ""
    blocks = [console.paint(console.clean(done.wheel), "bold")]
    if done.added:
        rows = [
            (console.clean(item.member), console.size(item.size), item.version or "", _origin(item))
            for item in done.added
        ]
        blocks.append(f"{would}added\n".capitalize() + console.table(rows, indent="  "))
    if done.removed:
        blocks.append(f"{would}removed\n".capitalize() + "\n".join(f"  {console.clean(name)}" for name in done.removed))
    if done.requires:
        blocks.append("Requires\n" + "\n".join(f"  {console.clean(line)}" for line in done.requires))
    blocks.append("\n".join(console.finding(item) for item in done.findings))
    if done.output is not None:
        blocks.append(f"{done.kept} files unchanged\nwritten to {console.clean(str(done.output))}")
    return "\n\n".join(block for block in blocks if block)


def _origin(item: Added) -> str:
    return console.clean(item.origin) + (" (replaces the one inside)" if item.replaced else "")
