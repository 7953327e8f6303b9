"""Regenerates `gpu/driver_lists.json`: from which driver on NVIDIA's own list of cards names a card.

    python -m tools.observe driver_lists CLONE

CLONE is a clone of NVIDIA/open-gpu-kernel-modules with its tags: each driver since 515.43.04 is a tag, and its README
lists the cards from Turing on by their PCI ids. A card that the oldest list names already has no row: its first driver
is older than the lists. A list names what the open modules are said to serve, so a card may have run before:
`_EARLIER` has those that a change log names. These are drivers for Linux; Windows has others.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from packaging.version import Version

from tools.observe import table

_LINE = re.compile(r"^\| (NVIDIA [^|]+?) +\| ([0-9A-F]{4})(?: [0-9A-F]{4} [0-9A-F]{4})? +\|$", re.MULTILINE)
_EARLIER = {"2684": ("520.56.06", "release notes of the Linux driver 520.56.06 of 2022-10-12, the first with it; ")}
_TAG = re.compile(r"\d{3}(?:\.\d+)+$")


def observe(clone: str) -> dict[str, list[dict[str, Any]]]:
    lists = [(tag, cards) for tag in _tags(Path(clone)) if (cards := _listed(Path(clone), tag))]
    table.nothing_read("driver_lists", len(lists))
    oldest, before = lists[0]
    first: dict[str, dict[str, Any]] = {}
    for tag, cards in lists[1:]:
        for device, name in cards.items():
            if device not in before and device not in first:
                first[device] = _row(device, name, tag, oldest)
    return {"cards": [first[device] for device in sorted(first)]}


def _row(device: str, name: str, tag: str, oldest: str) -> dict[str, Any]:
    source = f"README of NVIDIA's open kernel modules {tag}"
    driver, said = _EARLIER.get(device, (tag, ""))
    before = "" if said else f"; no list from {oldest} on to the one before names it"
    return {
        "pci_id": device,
        "name": name.removeprefix("NVIDIA "),
        "driver": driver,
        "source": f"{said}{source}{before}",
        "observed_at": table.today(),
        "evidence": "notes",
    }


def _tags(clone: Path) -> list[str]:
    return sorted((tag for tag in _git(clone, "tag").split() if _TAG.match(tag)), key=Version)


def _listed(clone: Path, tag: str) -> dict[str, str]:
    """Names by PCI device id. A device may have several names, told apart by the maker of the board: the first."""
    found: dict[str, str] = {}
    for name, device in _LINE.findall(_git(clone, "cat-file", "-p", f"{tag}:README.md")):
        found.setdefault(device.lower(), name)
    return found


def _git(clone: Path, *words: str) -> str:
    command = ["git", "-C", str(clone), *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=120).stdout
