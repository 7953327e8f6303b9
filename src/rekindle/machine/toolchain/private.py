"""The toolkits and compilers that `rekindle toolchain` has assembled: folders that nobody's PATH names."""

from __future__ import annotations

import re

from rekindle.core.paths import STATE_FOLDER, toolchain_folder
from rekindle.machine.host import Run

HOW = "rekindle"
"""What `found_by` says of them."""


def roots(run: Run, tool: str) -> list[str]:
    """The folders of this tool's kits, the newest version first. Kits for another kind of computer are left out."""
    home = run.ask("toolchain folder", lambda: str(toolchain_folder()))
    if not isinstance(home, str) or not home:
        return []
    folder = run.join(home, "kits")
    pattern = re.compile(rf"{re.escape(tool)}-(\d+(?:\.\d+)*)(?:-cu\d+)?(?:-full)?")
    names = run.names(folder, pattern)
    numbers = {
        name: [int(part) for part in match[1].split(".")] for name in names if (match := pattern.fullmatch(name))
    }
    ordered = sorted(numbers, key=lambda name: numbers[name], reverse=True)
    return [_root(run, run.join(folder, name)) for name in ordered]


def _root(run: Run, kit: str) -> str:
    """The kit's own folder, or that of somebody else which it stands for."""
    adopted = run.join(kit, STATE_FOLDER, "adopted")
    return (run.text(adopted) or "").strip() or kit if run.exists(adopted) else kit
