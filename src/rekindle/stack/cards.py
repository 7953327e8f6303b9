"""Several cards in one machine: which device is which, and how they talk to each other."""

from __future__ import annotations

from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation


def together(situation: Situation, route: Route) -> list[str]:
    """What the owner of several cards has to know."""
    every = [card for card in situation.cards for _ in range(card.count)]
    if len(every) < 2 or route.route is RouteKind.NONE:
        return []
    found: list[str] = []
    if len({card.name for card in every}) > 1:
        order = ", ".join(f"{index} is {card.name}" for index, card in enumerate(every[:8]))
        found.append(
            "CUDA numbers cards by speed and nvidia-smi by slot: set CUDA_DEVICE_ORDER=PCI_BUS_ID, then "
            f"CUDA_VISIBLE_DEVICES=N chooses one (in the order given here, {order})"
        )
    if situation.system == "windows":
        found.append("this build has no NCCL: on Windows several cards train together with `gloo` only")
    elif route.route in (RouteKind.OFFICIAL_WHEEL, RouteKind.CONDA_FORGE):
        found.append("this build has NCCL, through which several cards train together")
    return found
