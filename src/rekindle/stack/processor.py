"""PyTorch without a GPU: the cheaper answer where every card computes about as much as the processor beside it."""

from __future__ import annotations

from collections.abc import Iterable

from rekindle.compat.companion import release_for
from rekindle.compat.torch_python import releases_for
from rekindle.core.command import pip_install
from rekindle.knowledge.torch import companions, releases
from rekindle.model.cuda_line import index_of
from rekindle.model.torch_pin import CPU
from rekindle.stack import estimates
from rekindle.stack.route import Route, choose_python, environment_pip, environment_steps, numpy_pin, python_missing
from rekindle.stack.rules import Candidate, RouteKind, broken
from rekindle.stack.situation import Situation, Wish

LOSS = "small-card"


def small_cards(situation: Situation) -> list[str]:
    """For the notes: a card that computes little, and what there is instead, whatever the route is."""
    plain = pip_install(["torch"], index_url=index_of(CPU), system=situation.system)
    return [
        f"{card.name} has at most {card.few_cores} cores: PyTorch on the processor is often as fast (`{plain}`)"
        for card in situation.cards
        if card.few_cores
    ]


def at_once(situation: Situation, wish: Wish, routes: Iterable[Route]) -> list[str]:
    """The same beside hours of building, where nothing ready-made is for the card."""
    demands = wish.torch or wish.cuda or wish.needs
    if demands or small_cards(situation) or any(route.route.ready_made for route in routes):
        return []
    plain = pip_install(["torch"], index_url=index_of(CPU), system=situation.system)
    return [f"nothing ready-made is known for the card; on the processor PyTorch works at once: `{plain}`"]


def instead(situation: Situation, wish: Wish) -> Route | None:
    """The wheel for the processor; None where a card is worth the build, or somebody asks for what only a GPU has."""
    if wish.cuda is not None or wish.needs or not all(card.few_cores for card in situation.cards):
        return None
    every = [release for release in reversed(releases.torch_releases()) if wish.version_of(release)]
    if not every:
        return None
    mine = releases_for(situation.python or "", situation.system)
    release = next((each for each in every if each in mine), every[0])
    torch = str(wish.version_of(release))
    choice = choose_python(situation, release.wheels_for(torch, situation.system), f"PyTorch {torch}")
    beside = {name: found for name in companions.PROJECTS if (found := release_for(name, torch))}
    # Without `+cpu`: that index holds nothing else, and not all of its files are called so.
    pins = tuple(f"{name}=={version}" for name, version in {"torch": torch, **beside}.items())
    candidate = Candidate(name=f"torch {torch}+{CPU}", route=RouteKind.CPU_WHEEL, torch=torch)
    numpy = numpy_pin(torch, situation.system)
    index = index_of(CPU)
    return Route(
        route=RouteKind.CPU_WHEEL,
        torch=torch,
        variant=CPU,
        python=choice.python,
        index_url=index,
        torchvision=beside.get("torchvision"),
        torchaudio=beside.get("torchaudio"),
        numpy=numpy,
        requirements=pins,
        commands=(
            *environment_steps(situation, choice),
            *([environment_pip(situation, choice, "install", numpy)] if numpy else []),
            environment_pip(situation, choice, "install", *pins, "--index-url", index),
        ),
        loses=tuple(broken(LOSS, candidate, card=card.name, cores=card.few_cores).sentence for card in situation.cards),
        evidence=release.evidence,
        summary=f"PyTorch {torch} for the processor: ready in minutes, and often as fast as this card",
        why=(choice.why,) if choice.why else (),
        missing=python_missing(situation, choice),
        estimate=estimates.ready_made(RouteKind.CPU_WHEEL, situation.system),
    )
