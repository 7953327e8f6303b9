"""Extensions that are wished for beside torch: which PyTorch there are ready-made wheels for, and how they go in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rekindle.compat.extension_file import ChosenFile, chosen, ready_made
from rekindle.compat.judgement import Clash, Unknown
from rekindle.compat.package import runs_on
from rekindle.knowledge.builds.extension_files import AskedFile
from rekindle.knowledge.torch import companions
from rekindle.model.torch_pin import TorchPin
from rekindle.stack.offers import Offer
from rekindle.stack.rules import Candidate, Rejection, broken
from rekindle.stack.situation import Situation, Wish


def pythons(torch: TorchPin, every: Sequence[str | None], situation: Situation, wish: Wish) -> tuple[str, ...]:
    """Those for which there may be a wheel of each extension beside `2.13.0+cu130`."""
    return tuple(each for each in every if each and not any(_clashes(torch, each, situation, wish)))


def _clashes(torch: TorchPin, python: str, situation: Situation, wish: Wish) -> Iterator[Clash]:
    asked, cards = _asked(torch, python, situation), situation.named_cards
    judged = (ready_made(name, asked, cards, situation.glibc) for name in wish.extensions)
    return (each for each in judged if isinstance(each, Clash))


def missing(offer: Offer, situation: Situation, wish: Wish, candidate: Candidate) -> list[Rejection]:
    """An offer that an extension has no wheel for, with whichever of its Pythons."""
    if not wish.extensions or pythons(offer.pin, offer.pythons, situation, wish):
        return []
    every = [clash for each in offer.pythons for clash in _clashes(offer.pin, each, situation, wish)]
    said = every[0].sentence if every else f"{offer.label} is for no Python that is known"
    return [broken("package-wheel", candidate, sentence=said)]


def without_code(situation: Situation, wish: Wish) -> dict[str, list[Rejection]]:
    """Extensions of which no build runs on a card, whichever torch it is."""
    every = Candidate(name="any PyTorch")
    found: dict[str, list[Rejection]] = {}
    for name in wish.extensions:
        judged = [runs_on(name, None, card.capability) for card in situation.named_cards]
        if clashes := [each for each in judged if isinstance(each, Clash)]:
            found[name] = [broken("package-wheel", every, sentence=each.sentence) for each in clashes]
    return found


def brought(torch: TorchPin, python: str | None, situation: Situation, wish: Wish) -> dict[str, ChosenFile | None]:
    """What pip is told for each extension; None where the tables do not say. torchvision and torchaudio come anyway."""
    asked = _asked(torch, python or "", situation)
    return {
        name: chosen(name, asked, situation.named_cards) for name in wish.extensions if name not in companions.PROJECTS
    }


def unread(files: Mapping[str, ChosenFile | None]) -> tuple[str, ...]:
    look = "`rekindle extension find` looks into it"
    return tuple(
        f"what is inside the wheel of {name} ({file.by}): {look}" if file else f"which wheel of {name} fits: {look}"
        for name, file in files.items()
    )


def unanswered(situation: Situation, wish: Wish) -> bool:
    """Whether the tables know no file at all of an extension, so that nothing was judged."""
    asked = _asked(TorchPin("2.0.0"), "", situation)
    return any(isinstance(ready_made(name, asked, ()), Unknown) for name in wish.extensions)


def _asked(torch: TorchPin, python: str, situation: Situation) -> AskedFile:
    return AskedFile(torch=torch, python=python, platform=situation.platform)
