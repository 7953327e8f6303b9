"""A provider for wheel variants (PEP 817): what this computer takes, by all of its cards and by the tables.

A project names it in `[variant.providers.nvidia]`: `requires = ["rekindle-torch"]`, `plugin-api =
"rekindle.wheels.variant_provider"`. It says the same features as NVIDIA's provider, with three differences: every card
counts, not the newest alone; cards before 5.0 are known; and PTX for an older card is taken. `REKINDLE_MACHINE` names
the snapshot of another computer to answer for. uv 0.13 asks only the providers that it has built in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rekindle.compat.driver_cuda import newest_full
from rekindle.compat.variant import ARCHITECTURE, LEAST_CUDA, MOST_CUDA, spelled
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu.capabilities import known
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.machine import snapshot
from rekindle.model.card import Target


class VariantFeature(NamedTuple):
    """`values` are the best first; `multi_value`: a label may have several, and one that fits is enough."""

    name: str
    values: list[str]
    multi_value: bool = False


def get_all_configs() -> list[VariantFeature]:
    """Every value that there is."""
    cudas = _said(_cudas())
    features = [(LEAST_CUDA, cudas, False), (MOST_CUDA, cudas, False), (ARCHITECTURE, _spelled(_targets()), True)]
    return [VariantFeature(*each) for each in features]


def get_supported_configs() -> list[VariantFeature]:
    """What fits this computer: nothing where its cards or its driver are not known for certain."""
    place = os.environ.get("REKINDLE_MACHINE")
    machine = snapshot.load(Path(place)) if place else snapshot.here()
    driver = machine.driven_by
    newest = newest_full(driver) if driver else None
    cards = [gpu.capability for gpu in machine.gpus]
    if newest is None or not cards or None in cards:
        return []
    fits = [target for target in _targets() if all(runs(target, card) is not Runs.NO for card in cards if card)]
    return [
        VariantFeature(LEAST_CUDA, _said(cuda for cuda in _cudas() if cuda <= newest)),
        VariantFeature(MOST_CUDA, _said(cuda for cuda in _cudas() if cuda > newest)),
        *([VariantFeature(ARCHITECTURE, _spelled(fits), True)] if fits else []),
    ]


def _cudas() -> list[Version]:
    return sorted({row.version.major_minor for row in toolkits.toolkits()}, reverse=True)


def _said(cudas: Iterable[Version]) -> list[str]:
    """`12.0` is also `12`."""
    return [text for each in cudas for text in (f"{each}", *([f"{each.major}"] if each.minor == 0 else []))]


def _targets() -> list[Target]:
    """Code for the card itself before PTX, the newest first."""
    return sorted((Target(card, ptx=ptx) for ptx in (False, True) for card in known()), key=_order)


def _order(target: Target) -> tuple[bool, int, int]:
    return target.ptx, -target.capability.major, -target.capability.minor


def _spelled(targets: list[Target]) -> list[str]:
    return [spelled(target) for target in targets]
