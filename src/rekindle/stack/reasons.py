"""The one reason that decides, in words: why nothing works, why not a newer release."""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.core.version import Version
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.torch import releases
from rekindle.stack.route import Change, Route
from rekindle.stack.rules import Effect, Rejection, RouteKind
from rekindle.stack.situation import Situation, Wish


def why_nothing(situation: Situation, wish: Wish, rejections: Sequence[Rejection], change: Change) -> str:
    """Why no PyTorch can be had as it was asked for."""
    if not situation.cards:
        return "no NVIDIA card was found or named"
    whole = next((each for each in rejections if each.candidate.is_any), None)
    if whole:
        return whole.sentence
    if wish.cuda is not None:
        about = _about_cuda(wish, rejections)
        if about:
            return about.sentence
    if change.what == "driver":
        old = [each for each in rejections if each.rule == "driver-too-old"]
        near = next((each for each in old if each.candidate.cuda == change.cuda), None)
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
    return f"no PyTorch runs on {card} ({oldest}): {said}"


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
    """A release that cannot be had: what its own wheels lack, and why it cannot be built."""
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
    """Why the recommended release is not the newest; None when it is, or when an older one was asked for."""
    newest = releases.torch_releases()[-1].newest
    if best.torch is None or wish.torch is not None or wish.torchvision is not None or best.route is RouteKind.NONE:
        return None
    if Version(best.torch) >= Version(newest):
        return None
    return _against(_next_after(best.torch), best, rejections, routes)


def _next_after(torch: str) -> str:
    """The release that the recommended one stops short of."""
    later = [row.newest for row in releases.torch_releases() if Version(row.newest) > Version(torch)]
    return later[0]


def _takes(torch: str, python: str | None) -> bool:
    """The release has wheels for this Python, so another one is no reason against it."""
    row = releases.torch_release(torch)
    return python in {*row.pythons_linux, *row.pythons_windows}


def _against(version: str, best: Route, rejections: Sequence[Rejection], routes: Sequence[Route]) -> str | None:
    about = [each for each in rejections if each.candidate.torch == version]
    about = [each for each in about if each.candidate.route is best.route] or about
    losing = next((each for each in routes if each.torch == version and each.loses), None)
    if losing is not None:
        return f"not {losing.version}: {losing.loses[0]}"
    same = next((each for each in routes if each.torch == version and each.route is best.route), None)
    if same is not None and same.python != best.python and not _takes(version, best.python):
        return f"not {version}: it needs another Python ({same.python} instead of {best.python})"
    if same is not None:
        return f"not {version}: it works by the same route and is less tested (`--torch {version}` plans it)"
    chosen = decisive(about)
    return f"not {version}: {chosen.sentence}" if chosen else None


def decisive(about: Sequence[Rejection]) -> Rejection | None:
    """The one reason to name, of all against the wheels of a release: that against the one that came closest."""
    # A wheel without the card's code would not be saved by another driver; one that has the code came closer.
    lost = {each.candidate for each in about if each.rule in ("wheel-code", "wheel-code-partial", "toolkit-target")}
    about = [each for each in about if each.candidate not in lost] or about
    order = ("wheel-glibc", "wheel-code", "wheel-code-partial", "driver-branch", "driver-too-old", "torch-python")
    return _first(about, order) or next((each for each in about if each.kind is not Effect.COSTS), None)
