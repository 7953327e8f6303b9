"""Jetson boards: NVIDIA's own wheel for the JetPack that a board runs, or the reason why there is none."""

from __future__ import annotations

from rekindle.core.command import pip_install
from rekindle.knowledge.gpu.jetson import JetPack, jetpacks
from rekindle.stack.route import Route, lacks
from rekindle.stack.rules import Candidate, Rejection, RouteKind, broken
from rekindle.stack.situation import Card, Situation, Wish


def consider(situation: Situation, wish: Wish) -> tuple[list[Route], list[Rejection]]:
    """The routes of a situation that has a Jetson, newest JetPack first. Nothing else is considered for one."""
    card = next(card for card in situation.cards if card.jetson)
    every = jetpacks(card.jetson or "")
    fitting = [each for each in every if situation.jetpack in (None, each.l4t)]
    if situation.python is not None:
        fitting = [each for each in fitting if each.python == situation.python]
    fitting = [each for each in fitting if wish.admits(each.torch) and wish.admits_cuda(each.cuda)]
    if fitting:
        return [_route(each, card, situation) for each in fitting], []
    candidate = Candidate(name="any PyTorch")
    listed = ", ".join(f"{each.covers} with Python {each.python}, torch {each.torch}" for each in every) or "none"
    asked = [f"Python {situation.python}"] if situation.python else []
    asked += [f"torch {wish.torch}"] if wish.torch else []
    asked += [f"L4T R{situation.jetpack}"] if situation.jetpack else []
    why = f"none is for {' and '.join(asked)}" if asked and every else "there is none for it"
    return [], [broken("place-jetson", candidate, card=card.name, jetpacks=listed, why=why)]


def _route(jetpack: JetPack, card: Card, situation: Situation) -> Route:
    return Route(
        route=RouteKind.NVIDIA_WHEEL,
        torch=jetpack.torch,
        cuda=jetpack.cuda,
        python=jetpack.python,
        driver=f"the one of {jetpack.covers} (L4T R{jetpack.l4t})",
        location=jetpack.wheel,
        requirements=(jetpack.wheel,),
        commands=(pip_install([jetpack.wheel], system=situation.system),),
        summary=f"NVIDIA's own wheel of torch {jetpack.torch} for {jetpack.covers} is made for {card.name}",
        why=(
            "a Jetson runs NVIDIA's wheels for its JetPack: PyTorch's aarch64 wheels are for servers",
            f"{jetpack.covers} has Python {jetpack.python}; `cat /etc/nv_tegra_release` shows R{jetpack.l4t} there",
        ),
        unverified=("the wheel's address: NVIDIA's server was not asked for it here",),
        lacks=lacks(situation),
        evidence=jetpack.evidence,
    )
