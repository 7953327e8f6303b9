"""The one reason that decides, in words: why nothing works, why not a newer release."""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.compat.judgement import Fits
from rekindle.compat.torch_python import takes
from rekindle.core.version import Version
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.torch import releases
from rekindle.stack.route import Change, Route
from rekindle.stack.rules import Effect, Rejection, RouteKind
from rekindle.stack.situation import SYSTEMS, Situation, Wish

_DECIDED_BY = {"driver": "driver-too-old", "toolset": "cuda-msvc"}
"""What stands in the way where another of these would help."""


def why_nothing(situation: Situation, wish: Wish, rejections: Sequence[Rejection], change: Change | None) -> str:
    """Why no PyTorch can be had as it was asked for."""
    if not situation.cards:
        return "no NVIDIA card was found or named"
    whole = next((each for each in rejections if each.candidate.is_any), None)
    if whole:
        return whole.sentence
    if wish.extensions:
        lacking = next((each for each in rejections if each.rule == "package-wheel"), None)
        if lacking and wish.torch is not None:
            return lacking.sentence
        if lacking:
            return f"no PyTorch for this has ready-made wheels of {' and '.join(wish.extensions)}: {lacking.sentence}"
    if wish.cuda is not None:
        about = _about_cuda(wish, rejections)
        if about:
            return about.sentence
    if change is not None and change.what in _DECIDED_BY:
        of_cuda = (each for each in rejections if each.candidate.cuda == change.cuda)
        near = next((each for each in of_cuda if each.rule == _DECIDED_BY[change.what]), None)
        if near:
            return near.sentence
    if wish.torch is not None or wish.torchvision is not None:
        return _no_release(situation, wish, rejections)
    oldest = min(situation.capabilities)
    facts = capabilities.facts(oldest)
    ended = _ended_early(facts.last_cuda, rejections) if facts and facts.last_cuda else None
    if ended:
        return ended.sentence
    card = next(card.name for card in situation.cards if oldest in card.capabilities)
    said = facts.torch.removeprefix("never: ") if facts else "it is not in Rekindle's data"
    asked = f" with CUDA {wish.cuda}" if wish.cuda is not None else ""
    return f"no PyTorch{asked} runs on {card} ({oldest}): {said}"


def _ended_early(last: Version, rejections: Sequence[Rejection]) -> Rejection | None:
    """The card's drivers end before the last CUDA that compiles for it (GRID K2: R367)."""
    return next((each for each in rejections if each.rule == "driver-branch" and each.candidate.cuda == last), None)


def _about_cuda(wish: Wish, rejections: Sequence[Rejection]) -> Rejection | None:
    return next(
        (
            each
            for each in rejections
            if each.candidate.cuda is not None
            and each.candidate.torch is None
            and wish.admits_cuda(each.candidate.cuda)
        ),
        None,
    )


def _no_release(situation: Situation, wish: Wish, rejections: Sequence[Rejection]) -> str:
    """A release that is not available: what its own wheels lack, and why it cannot be built."""
    if early := _first(rejections, ("torch-need",)):
        return early.sentence
    asked = f"PyTorch {wish.torch}" if wish.torch is not None else f"torchvision {wish.torchvision}"
    cards = " and ".join(card.name for card in situation.cards)
    told = [
        _first(rejections, kind)
        for kind in (
            ("wheel-code", "wheel-code-partial", "wheel-jit-driver", "wheel-unknown"),
            ("torch-arch-syntax", "torch-cuda-max", "torch-cuda-min", "toolkit-target", "cuda-gcc", "cuda-msvc"),
        )
    ]
    reasons = "; ".join(each.sentence for each in told if each is not None)
    return f"{asked} cannot run on {cards}: {reasons}" if reasons else f"{asked} cannot run on {cards}"


def _first(rejections: Sequence[Rejection], rules: tuple[str, ...]) -> Rejection | None:
    return next((each for name in rules for each in rejections if each.rule == name), None)


def why_not_newest(best: Route, wish: Wish, rejections: Sequence[Rejection], routes: Sequence[Route]) -> str | None:
    """Why the recommended release is not the newest, or why one that was asked for has no official wheel; else None."""
    newest = releases.torch_releases()[-1].newest
    if best.route in (RouteKind.SOURCE_BUILD, RouteKind.CONDA_FORGE, RouteKind.WSL) and wish.torch is not None:
        official = (each for each in rejections if each.candidate.route is RouteKind.OFFICIAL_WHEEL)
        wheels = [each for each in official if each.candidate.torch == best.torch]
        chosen = decisive(sorted(wheels, key=lambda each: each.candidate.cuda or Version("0"), reverse=True))
        return f"no official wheel of {best.torch} serves: {chosen.sentence}" if chosen else None
    if best.torch is None or wish.torch is not None or wish.torchvision is not None or best.route is RouteKind.NONE:
        return None
    if Version(best.torch) >= Version(newest):
        return None
    if best.route is RouteKind.INSTALLED:
        able = max((each.torch for each in routes if each.torch), key=Version, default=best.torch)
        newer = Version(able) > Version(best.torch)
        return f"not {able}: what is installed works as it is (`--torch {able}` plans the newer one)" if newer else None
    return _against(_later(best.torch), best, rejections, routes)


def _later(torch: str) -> list[str]:
    """The releases after the recommended one; the first is the one that it stops short of."""
    return [row.newest for row in releases.torch_releases() if Version(row.newest) > Version(torch)]


def _takes(torch: str, python: str | None) -> bool:
    """The release has wheels for this Python, so another one is no reason against it."""
    return any(isinstance(takes(torch, python or "", system), Fits) for system in SYSTEMS)


def _against(later: list[str], best: Route, rejections: Sequence[Rejection], routes: Sequence[Route]) -> str | None:
    version = later[0]
    losing = next((each for each in routes if each.torch == version and each.loses), None)
    if losing is not None:
        return f"not {losing.version}: {losing.loses[0]}"
    same = next((each for each in routes if each.torch == version and each.route is best.route), None)
    if same is not None and same.python != best.python and not _takes(version, best.python):
        return f"not {version}: it needs another Python ({same.python} instead of {best.python})"
    if same is not None:
        strangers = not best.strangers and same.strangers
        but = f"others than the makers built {' and '.join(same.strangers)}" if strangers else "is less tested"
        return f"not {version}: it works by the same route and {but} (`--torch {version}` plans it)"
    # Where no wheel of the next release has the card's code, one of a later release may lack only the driver.
    every = {each: _of_route(best.route, [one for one in rejections if one.candidate.torch == each]) for each in later}
    nearest = next((each for each in later if _with_code(every[each])), version)
    chosen = decisive(every[nearest])
    return f"not {nearest}: {chosen.sentence}" if chosen else None


def _of_route(route: RouteKind, about: list[Rejection]) -> list[Rejection]:
    """What speaks against the same route, else against the official wheel for this platform, else all."""
    kinds = ([each for each in about if each.candidate.route is kind] for kind in (route, RouteKind.OFFICIAL_WHEEL))
    return next((each for each in kinds if each), about)


def _with_code(about: Sequence[Rejection]) -> list[Rejection]:
    """What speaks against those that have the card's code."""
    lost = {each.candidate for each in about if each.rule in ("wheel-code", "wheel-code-partial", "toolkit-target")}
    return [each for each in about if each.candidate not in lost]


def decisive(about: Sequence[Rejection]) -> Rejection | None:
    """The one reason to name, of all against the wheels of a release: that against the one that came closest."""
    # A wheel without the card's code would not be saved by another driver; one that has the code came closer.
    about = _with_code(about) or about
    others = {each.candidate.cuda for each in about if each.rule != "package-wheel" and each.kind is Effect.REJECTS}
    if lacking := [each for each in about if each.rule == "package-wheel" and each.candidate.cuda not in others]:
        return lacking[0]
    order = ("wheel-glibc", "wheel-code", "wheel-code-partial", "driver-branch", "driver-too-old", "torch-python")
    return _first(about, order) or next((each for each in about if each.kind is not Effect.COSTS), None)
