"""How far the Linux wheels of torch 1.0 to 1.9 serve a card."""

from __future__ import annotations

import msgspec

from rekindle.compat.gpu_code import overall, own, served
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.torch.torch_wheels import OldWheel, old_wheels
from rekindle.model.card import Capability

_NEARLY = 0.95
"""cuDNN is linked into the wheels of that time; each of its kernels is there for a few architectures only, so that the
same 13 to 15 containers of 731 to 921 lack every card but Pascal."""


class OldShare(msgspec.Struct, frozen=True, kw_only=True):
    """Of `containers` of the wheel's main library, `runs` have code for the card."""

    torch: str
    pythons: tuple[str, ...]
    cuda: Version | None
    coverage: Coverage
    runs: int
    containers: int
    by_jit: bool

    @property
    def nearly(self) -> bool:
        return nearly(self.runs, self.containers)

    @property
    def spoken(self) -> str:
        if self.coverage is Coverage.SERVES:
            return f"{self.torch}" + (" by JIT" if self.by_jit else "")
        return f"{self.torch} in {self.runs} of {self.containers} containers"


def nearly(runs: int, containers: int) -> bool:
    """All but a few parts, which may be those of the cuDNN inside for other cards."""
    return runs >= _NEARLY * containers


def share(row: OldWheel, card: Capability) -> OldShare:
    """How much of torch's own GPU code runs on a card: by its largest library, which the others go with."""
    codes = own(row.gpu_code)
    parts = [served(code, card, torch=Version(row.version)) for code in codes]
    main = max(parts, key=lambda part: part.containers, default=None)
    return OldShare(
        torch=row.version,
        pythons=row.pythons,
        cuda=row.cuda,
        coverage=overall(part.coverage for part in parts),
        runs=main.native + main.jit if main else 0,
        containers=main.containers if main else 0,
        by_jit=bool(main and main.by_jit),
    )


def shares(card: Capability) -> tuple[OldShare, ...]:
    """What each of them has for a card; those that have nothing are left out."""
    found = [share(row, card) for row in old_wheels()]
    return tuple(each for each in found if each.coverage is not Coverage.NO)


def old_wheels_line(card: Capability) -> str:
    """The newest that serves the card whole, or the one that has most, in words."""
    every = [row.version for row in old_wheels()]
    found = shares(card)
    if not found:
        return f"none of the {len(every)} that were opened ({every[0]} to {every[-1]})"
    whole = [each for each in found if each.coverage is Coverage.SERVES]
    nearly = [each for each in found if each.nearly]
    best = whole[-1] if whole else nearly[-1] if nearly else max(found, key=_most)
    pythons = (
        f"Python {best.pythons[0]} to {best.pythons[-1]}" if len(best.pythons) > 1 else f"Python {best.pythons[0]}"
    )
    if not whole and not nearly:
        return f"none; the most is {best.spoken} ({pythons})"
    if not whole:
        lacking = best.containers - best.runs
        return (
            f"{best.torch} ({pythons}) in all but {lacking} of {best.containers} containers, which may be those of the "
            "cuDNN inside for other cards: UNVERIFIED"
        )
    return f"{best.spoken} ({pythons})" + (f" and {len(whole) - 1} more" if len(whole) > 1 else "")


def _most(share: OldShare) -> tuple[float, Version]:
    return share.runs / max(share.containers, 1), Version(share.torch)
