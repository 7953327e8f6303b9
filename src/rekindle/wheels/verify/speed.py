"""`verify --bench` and `--all-gpus`: how fast each card is by its data sheet, and whether several work together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rekindle.core.findings import Finding, State
from rekindle.core.run import call
from rekindle.knowledge.gpu.capabilities import throughput
from rekindle.knowledge.gpu.capability import Capability
from rekindle.wheels.verify import trial
from rekindle.wheels.verify.trial import TrialAnswer, TrialRun

BENCH = ("bench-fp32", "bench-fp16", "bench-conv")
TOGETHER = ("peer-copy", "all-reduce")


def bench(environment: TrialRun, card: dict[str, Any]) -> list[TrialAnswer]:
    """Matrix products and a convolution on one card, each with its share of the nominal rate."""
    single, half = _nominal(card, _clocks())
    words = ["bench", str(card["index"]), f"{single or 0:.3f}", f"{half or 0:.3f}"]
    return trial.asked(environment, words, BENCH, timeout=300.0)


def together(environment: TrialRun, cards: Sequence[dict[str, Any]]) -> list[TrialAnswer]:
    """Copies between every two cards, and a sum over all of them."""
    if len(cards) < 2:
        text = "torch sees one card; this needs two (a K80 is two)"
        return [TrialAnswer(id=name, finding=Finding(id=name, state=State.UNVERIFIED, found=text)) for name in TOGETHER]
    return trial.asked(environment, ["together", str(len(cards))], TOGETHER, timeout=300.0)


def _nominal(card: dict[str, Any], clocks: Sequence[float]) -> tuple[float | None, float | None]:
    rates = throughput(Capability.parse(str(card["capability"])))
    index = int(card["index"])
    clock = clocks[index] if index < len(clocks) else (card.get("clock") or 0) / 1000
    if rates is None or not clock or not card.get("multiprocessors"):
        return None, None
    return rates.nominal(int(card["multiprocessors"]), clock)


def _clocks() -> list[float]:
    """The highest clock of each card in MHz, in the order of their PCI addresses."""
    query = ["nvidia-smi", "--query-gpu=pci.bus_id,clocks.max.sm", "--format=csv,noheader,nounits"]
    said = call(query, timeout=30.0)
    if not said.ok:
        return []
    rows = sorted(line.split(",") for line in said.out.splitlines() if line.count(",") == 1)
    try:
        return [float(row[1]) for row in rows]
    except ValueError:
        return []
