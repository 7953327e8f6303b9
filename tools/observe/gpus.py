"""Brings `gpu/gpus.json` up to date with NVIDIA's list of supported GPUs and the list of PCI ids.

    python -m tools.observe gpus PCI.IDS SUPPORTED-GPUS.JSON

pci.ids comes with the package hwdata; supported-gpus.json lies in NVIDIA's driver for Linux (unpack the .run file with
`-x`). A device that no row has yet becomes a row of its own, or one more id of the row with its name and chip; what the
lists no longer mention stays. The capability follows from the chip: a chip that `chips.json` lacks stops the script.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

from tools.observe import table

_NVIDIA = re.compile(r"^10de  .*?$(.*?)^(?=[0-9a-f]{4}  )", re.MULTILINE | re.DOTALL)
# Fermi to Blackwell, and what follows in the same pattern.
COMPUTE = re.compile(r"(?:G[FKMPVAHBR]|TU|AD)\d+[A-Z]*$")
# Switches, ids that are only reserved, and placeholders for boards without a name.
_NO_CARD = re.compile(r"NVSwitch|Reserved Dev ID|Generic-GPU")
_DEVICE = re.compile(r"^\t([0-9a-f]{4})  (\w+) \[([^\]]+)\]", re.MULTILINE)


def observe(pci_ids: str, supported: str) -> dict[str, list[dict[str, Any]]]:
    rows = copy.deepcopy(table.read("gpus")["gpus"])
    chips = {row["name"]: row for row in table.read("chips")["chips"]}
    known = {pci.partition(":")[0] for row in rows for pci in row["pci_ids"]}
    official = _official(Path(supported))
    devices = read_pci_ids(Path(pci_ids))
    unknown: set[str] = set()
    for device, (chip, called) in sorted(devices.items()):
        if device in known or _NO_CARD.search(called):
            continue
        own = plain_chip(chip, chips)
        if own in chips:
            _add(rows, chips[own], official.get(device) or called, device, official=device in official)
        elif COMPUTE.match(own):
            unknown.add(own)
    if unknown:
        print("chips without a capability in chips.json, left out:", *sorted(unknown), file=sys.stderr)
    return {"gpus": rows}


def plain_chip(name: str, known: Container[str]) -> str:
    """`TU117GLM` is a TU117 on a board for laptops, `TU117BM` another board; `GK208BM` has a GK208B."""
    chip = re.sub(r"(?<=[\dBCS])(?:GL|M)+$", "", name)
    return chip if chip in known or chip == name else re.sub(r"(?<=\d)[BCS]$", "", chip)


def read_pci_ids(path: Path) -> dict[str, tuple[str, str]]:
    """Chip and name of each NVIDIA device that has both: `1b06  GP102 [GeForce GTX 1080 Ti]`."""
    text = path.read_text(encoding="utf-8", errors="replace")
    section = _NVIDIA.search(text + "\n0000  end\n")
    found = _DEVICE.findall(section[1]) if section else []
    return {device: (chip, name.split(" / ")[0].strip()) for device, chip, name in found}


def _official(path: Path) -> dict[str, str]:
    """NVIDIA's own names by device id."""
    entries = json.loads(path.read_text(encoding="utf-8"))["chips"]
    return {
        entry["devid"].lower().removeprefix("0x"): re.sub(r"^NVIDIA ", "", entry["name"])
        for entry in entries
        if "subdeviceid" not in entry
    }


def _add(rows: list[dict[str, Any]], chip: dict[str, Any], name: str, device: str, *, official: bool) -> None:
    for row in rows:
        if (row["name"], row["chip"]) == (name, chip["name"]):
            row["pci_ids"] = sorted({*row["pci_ids"], device})
            return
    rows.append(
        {
            "name": name,
            "capability": chip["capability"],
            "architecture": chip["architecture"],
            "chip": chip["name"],
            "pci_ids": [device],
            "official": official,
            "integrated": False,
            "last_driver_branch": chip["last_driver_branch"],
            "source": "supported-gpus.json; pci.ids" if official else "pci.ids",
            "observed_at": table.today(),
            "evidence": "binary" if official else "notes",
        }
    )
