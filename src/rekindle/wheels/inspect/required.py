"""`inspect --require sm_61`, `--gpu NAME --check`: has a wheel lost an architecture, does it serve a GPU?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rekindle.core.errors import UsageError
from rekindle.core.findings import Finding, Fix, State, failed, passed, warned
from rekindle.knowledge.gpu.capability import Coverage, Target
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.wheels.inspect.inspection import CardCoverage, Inspection


def targets_of(words: Sequence[str]) -> tuple[Target, ...]:
    """`sm_61` and `6.1` are native code, `compute_90` is PTX, `9.0+PTX` both. A word may be a list: `sm_61,sm_75`."""
    found: list[Target] = []
    for word in (part for text in words for part in (re.split(r"[\s,;]+", text.strip(" ,;")))):
        try:
            found += parse_arch_list(word) if word[:1].isdigit() else (Target.parse(word),)
        except ValueError:
            message = f"`{word[:40]}` is not a target"
            hint = "write `--require sm_61` for native code, `compute_90` for PTX; a card by name goes with `--gpu`"
            raise UsageError(message, hint=hint) from None
    return tuple(found)


def required_findings(found: Inspection, wanted: Sequence[Target]) -> list[Finding]:
    """Every library of the package's own must hold every target; one that has it in fewer places is named.

    A GPU that was asked for must be served.
    """
    return [*(_finding(found, target) for target in wanted), *(_served(card) for card in found.cards)]


def lost(found: Inspection, wanted: Sequence[Target]) -> list[Target]:
    """Those of the targets that not every library holds."""
    return [target for target in wanted if _finding(found, target).state is State.FAIL]


def _finding(found: Inspection, target: Target) -> Finding:
    own = [code for code in found.gpu_code if code.counted]
    if not own:
        return _lost(f"{target} is not there: `{found.name}` holds no GPU code")
    without = [code.file for code in own if not code.targets.get(str(target))]
    if without:
        have = ", ".join(dict.fromkeys(name for code in own for name in code.targets))
        more = f" and {len(without) - 1} more" if len(without) > 1 else ""
        return _lost(f"{target} is not in `{without[0]}`{more}; inside are {have}")
    fewer = [
        code.file
        for code in own
        if code.targets[str(target)]
        < max(n for name, n in code.targets.items() if Target.parse(name).ptx == target.ptx)
    ]
    if fewer:
        return warned("require", f"{target} is in every library, in `{fewer[0]}` in fewer places than other targets")
    return passed("require", f"{target} is in {_every(len(own))} with GPU code")


def _served(card: CardCoverage) -> Finding:
    if card.coverage is Coverage.SERVES:
        how = "through its PTX, which the driver compiles" if card.by_jit else "with native code"
        return passed("gpu", f"{card.name} ({card.capability.sm}) is served {how}")
    text = "only some of its GPU code runs" if card.coverage is Coverage.PARTIAL else "none of its GPU code runs"
    return failed("gpu", f"{text} on {card.name} ({card.capability.sm})")


def _every(count: int) -> str:
    return "the one library" if count == 1 else f"all {count} libraries"


def _lost(text: str) -> Finding:
    return failed("require", text, fix=Fix(text="look at TORCH_CUDA_ARCH_LIST of the build"))
