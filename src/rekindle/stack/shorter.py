"""A build by compiling less: the official wheel keeps its CPU half, and only its GPU half is made for the cards."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rekindle.compat import wheel_platform
from rekindle.compat.judgement import Clash
from rekindle.core.command import Command, rekindle
from rekindle.core.version import Version
from rekindle.knowledge.builds import profiles
from rekindle.knowledge.builds.limits import since
from rekindle.model.card import Capability
from rekindle.model.platform import LINUX, WINDOWS
from rekindle.stack import estimates, offers, prebuilt
from rekindle.stack.offers import Offer
from rekindle.stack.route import Shorter
from rekindle.stack.rules import Candidate, RouteKind
from rekindle.stack.situation import Situation

MAGMA = "MAGMA: what of torch.linalg only it can do raises"
_UNVERIFIED = {
    "linux": "no such wheel has run on this kind of card yet; names and kernels are compared before it is written",
    "windows": "not yet run on Windows; names and kernels are compared before it is written",
}


def shorter(version: str, cuda: Version, python: str | None, situation: Situation, plan: Command) -> Shorter | None:
    """None where there is no official wheel of the release, of that CUDA's major, for this Python.

    `plan` is the command that writes the plan.
    """
    if situation.platform not in (LINUX, WINDOWS):
        return None
    if not since("graft-known") <= Version.parse(version).major_minor < since("graft-unknown"):
        return None
    every = offers.official_of(version, situation.platform)
    fitting = [each for each in every if _fits(each, cuda, python) and _loads(each, situation)]
    estimate = estimates.source_build(version, situation, half=True)
    if not fitting or estimate is None:
        return None
    base = min(fitting, key=lambda each: (each.cuda.major_minor != cuda.major_minor, each.cuda))
    candidate = Candidate(name=base.label, route=RouteKind.SOURCE_BUILD, torch=version)
    lost = [found.sentence for card in situation.cards for capability in card.capabilities
            for found in prebuilt.libraries(base, card, capability, candidate)]  # fmt: skip
    return Shorter(
        base=base.label,
        estimate=estimate,
        loses=tuple(dict.fromkeys([*lost, *left_out(situation.capabilities)])),
        unverified=_UNVERIFIED[situation.system],
        commands=(plan, *_commands(base, python, situation.system)),
    )


def left_out(cards: Iterable[Capability]) -> tuple[str, ...]:
    """What a new half lacks that these cards could use: MAGMA's kernels, and flash attention's."""
    return (MAGMA, "flash attention") if profiles.serves("USE_FLASH_ATTENTION", cards) else (MAGMA,)


def _fits(offer: Offer, cuda: Version, python: str | None) -> bool:
    headers = offer.system != "windows" or (offer.cudnn is not None and offer.cudnn >= since("cudnn-packages-windows"))
    return headers and offer.cuda.major == cuda.major and python in offer.pythons and offer.index_url is not None


def _loads(offer: Offer, situation: Situation) -> bool:
    return not isinstance(wheel_platform.loads(offer.label, offer.glibc, situation.glibc), Clash)


def _commands(base: Offer, python: str | None, system: str) -> tuple[Command, ...]:
    """pip's own download, for the Python of the plan: the file's hash is then the index's."""
    local = f"+{base.variant}" if base.variant else ""
    words = ["download", "--no-deps", "--only-binary=:all:", "--python-version", str(python), "-d", "base"]
    words += ["--index-url", str(base.index_url), f"torch=={base.torch}{local}"]
    return (Command("pip", *words, system=system), _build("plan.toml", system))


def _build(plan: str, system: str | None) -> Command:
    return rekindle("build", plan, "--graft", "base", system=system)


def after_planning(found: Shorter, plan: str) -> Shorter:
    """The same once the plan is written, under this name."""
    return msgspec.structs.replace(found, commands=(*found.commands[1:-1], _build(plan, found.commands[-1].system)))


def shorter_lines(found: Shorter) -> list[str]:
    """One paragraph: what, how long, what is lost, what nobody knows."""
    first = f"{found.base} with a GPU half for your cards: {found.estimate.time}"
    return [first, *(f"loses: {each}" for each in found.loses), f"UNVERIFIED: {found.unverified}"]
