"""Holds `gpu/chips.json` against the list of PCI ids: names every chip of a card that the table lacks.

    python -m tools.observe chips PCI.IDS

No list that can be read by a script gives a chip's capability: a person adds the row, from NVIDIA's page of CUDA GPUs,
and this script says which rows are missing. Chips before Fermi never had CUDA 2.x and are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tools.observe import table
from tools.observe.gpus import COMPUTE, plain_chip, read_pci_ids


def observe(pci_ids: str) -> dict[str, list[dict[str, Any]]]:
    current = table.read("chips")
    known = {row["name"] for row in current["chips"]}
    seen = {plain_chip(chip) for chip, _ in read_pci_ids(Path(pci_ids)).values()}
    for chip in sorted(chip for chip in seen - known if COMPUTE.match(chip)):
        print(f"not in chips.json: {chip}", file=sys.stderr)
    return current
