"""Snapshots of a lab's machines: cards, driver and Python of each, nothing else known of it."""

from __future__ import annotations

from pathlib import Path

from rekindle.core import files
from rekindle.core.codec import to_json
from rekindle.core.version import Version
from rekindle.knowledge.gpu.gpus import find
from rekindle.machine.model import FoundDriver, FoundGpu, FoundPython, Machine
from rekindle.machine.snapshot import Snapshot

MIXED = (
    (10, "NVIDIA A100-SXM4-80GB", 8, "550.90.07", "3.11.9"),
    (8, "NVIDIA GeForce RTX 3090", 2, "550.90.07", "3.11.9"),
    (6, "Tesla V100-SXM2-32GB", 4, "550.90.07", "3.11.9"),
    (5, "NVIDIA GeForce GTX 1080 Ti", 4, "550.90.07", "3.10.12"),
    (4, "NVIDIA GeForce RTX 4090", 1, "570.86.15", "3.12.3"),
    (2, "NVIDIA H100 80GB HBM3", 8, "570.86.15", "3.12.3"),
    (2, "NVIDIA GeForce RTX 5090", 1, "575.64.05", "3.12.3"),
    (1, "NVIDIA GeForce GTX TITAN X", 1, "535.183.01", "3.10.12"),
    (1, "Tesla P100-PCIE-16GB", 2, "535.183.01", "3.10.12"),
    (1, "Tesla K80", 2, "470.256.02", "3.10.12"),
)
"""How many machines, their card, how many of it in each, the driver, the Python: forty in all."""


def machine(card: str, count: int, driver: str, python: str) -> Machine:
    gpu = FoundGpu(name=card, capability=find(card).capabilities[0], sources=("nvidia-smi",))
    here = FoundPython(path="/usr/bin/python3", version=Version(python))
    found = FoundDriver(version=Version(driver), sources=("nvidia-smi",))
    return Machine(os="linux", arch="x86_64", gpus=(gpu,) * count, driver=found, python=here, pythons=(here,))


def save(path: Path, *of: object) -> None:
    card, count, driver, python = of
    made = machine(str(card), int(str(count)), str(driver), str(python))
    files.write_text(path, to_json(Snapshot(machine=made)) + "\n")


def mixed(folder: Path) -> Path:
    """Forty machines, `node01.json` to `node40.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    every = [row[1:] for row in MIXED for _ in range(row[0])]
    for number, of in enumerate(every, 1):
        save(folder / f"node{number:02}.json", *of)
    return folder
