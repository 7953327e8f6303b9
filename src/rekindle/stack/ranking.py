"""Which of several routes is the best: one that loses nothing, then the cheapest, then the preference."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.torch import releases
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Prefer, Situation, Wish

READY = (
    RouteKind.INSTALLED,
    RouteKind.OFFICIAL_WHEEL,
    RouteKind.NVIDIA_WHEEL,
    RouteKind.CONDA_FORGE,
    RouteKind.SHELF,
)


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A route with what only the ranking asks for."""

    route: Route
    proof: int = 0
    untried: bool = False
    default_variant: bool = True
    experimental: bool = False
    jit: bool = True


def is_ready(route: Route) -> bool:
    return route.route in READY and not route.loses


def ranked(found: list[Ranked], situation: Situation, wish: Wish) -> list[Route]:
    """One route per kind and release, best first."""
    best: dict[tuple[RouteKind, str | None, str | None], Route] = {}
    for each in sorted(found, key=lambda one: _key(one, situation, wish)):
        best.setdefault((each.route.route, each.route.torch, each.route.builder), each.route)
    return list(best.values())


def _key(each: Ranked, situation: Situation, wish: Wish) -> tuple[object, ...]:
    route = each.route
    version = Version.parse(route.torch or "0")
    changed = situation.python is not None and route.python != situation.python
    cuda = route.cuda or Version("0")
    newest = tuple(-part for part in version.parts)
    # Of releases to build, one that somebody has built for such a card.
    taste: tuple[object, ...] = (each.proof == 2, each.untried and wish.prefer is not Prefer.NEWEST, newest)
    if wish.prefer is Prefer.STABLE:
        latest = version.major_minor == Version(releases.torch_releases()[-1].minor)
        taste = (each.proof, each.experimental, latest, newest)
    elif wish.prefer is Prefer.SMALLEST:
        size = route.estimate.disk_gb if route.estimate and route.estimate.disk_gb is not None else 99.0
        taste = (each.proof == 2, size, newest)
    # PyTorch's own choice of CUDA for a release; for a card that newer toolkits dropped, the one that asks for least.
    dropped = not all(toolkits.still_supported(capability) for capability in situation.capabilities)
    line: tuple[object, ...] = (not each.default_variant, each.experimental, -cuda.major, -cuda.minor)
    if dropped:
        line = (each.experimental, -cuda.major, cuda.minor)
    cost: tuple[object, ...] = (bool(route.loses), route.route.tier)
    if wish.prefer is Prefer.QUICKEST:
        cost = (route.route not in READY, bool(route.loses), route.route.tier)
    # A line that keeps torchvision and torchaudio, among lines that are as good.
    beside = [route.torchvision, route.torchaudio].count(None) if route.route is RouteKind.OFFICIAL_WHEEL else 0
    # None counts for whoever takes what others build.
    strangers = 0 if wish.community else len(route.strangers)
    # Its NVRTC and ptxas know the card: what is compiled while it runs is compiled for it.
    late = route.cuda is not None and not all(map(toolkits.toolkit(route.cuda).has_target, situation.capabilities))
    return (*cost, strangers, changed, *taste, not each.jit, beside, late, bool(route.unverified), line)
