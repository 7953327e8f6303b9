"""Do this cuDNN, and the math libraries of this CUDA, hold code for this card? Does torch compile with this cuDNN?"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.errors import UnknownName
from rekindle.core.version import Version
from rekindle.knowledge.builds import limits
from rekindle.knowledge.cuda.cudnn import families, math_libraries, releases, row_of
from rekindle.knowledge.cuda.toolkits import toolkit
from rekindle.knowledge.tables import Evidence, cached
from rekindle.knowledge.torch.releases import torch_release
from rekindle.model.card import Capability


@cached
def cudnn_serves(version: Version, card: Capability, *, cuda_major: int = 11) -> Judgement:
    """Unknown: newer than the tables, or between two releases that were opened and differ."""
    answer = _holds(version, card, cuda_major)
    if answer:
        return Fits()
    if answer is None:
        return Unknown(missing=f"whether cuDNN {version} has code for {card.sm} is not known")
    return Clash(
        sentence=f"cuDNN {version} has no code for {card.sm}: {_spoken(card)}",
        source="the GPU code of cuDNN's libraries on the package index; NVIDIA's support matrix for older ones",
        changes=_others(card),
    )


def lines_serve(line: Version, card: Capability, *, cuda_major: int) -> Judgement:
    """The same of a line (`9`, `9.1`): a clash where none of its releases has code for the card."""
    made = [each for each in cudnns_for(cuda_major) if each.starts_with(line)]
    judged = [cudnn_serves(each, card, cuda_major=cuda_major) for each in made]
    good = next((each for each in judged if not isinstance(each, Clash)), None)
    if good is not None or not judged:
        return good or Unknown(missing=f"which cuDNN {line} is for CUDA {cuda_major} is not known")
    sentence = f"cuDNN {line} for CUDA {cuda_major} has no code for {card.sm}: {_spoken(card)}"
    return msgspec.structs.replace(judged[-1], sentence=sentence)


def _spoken(card: Capability) -> str:
    if last := last_cudnn(card):
        return f"{last} was the last with it"
    first = _first_cudnn(card)
    return f"{first} is the first with it" if first else "none has"


def _others(card: Capability) -> tuple[Alternative, ...]:
    if last := last_cudnn(card):
        return (Alternative(what="cudnn", value=str(last), text=f"use cuDNN {last}, the last with code for {card.sm}"),)
    if first := _first_cudnn(card):
        use = f"use cuDNN {first} or newer, which has code for {card.sm}"
        return (Alternative(what="cudnn", value=str(first), text=use),)
    return ()


def _first_cudnn(card: Capability) -> Version | None:
    return next((row.version for row in releases() if _holds(row.version, card, 12)), None)


@cached
def compiles_with(torch: str, cudnn: Version) -> Judgement:
    """Does this release of PyTorch compile with this cuDNN?"""
    release, bound = torch_release(torch), limits.cudnn_range(torch)
    if bound is not None and cudnn >= bound.below:
        return _does_not_compile(torch, cudnn, f"below {bound.below}", bound.why)
    if cudnn < release.min_cudnn:
        return _does_not_compile(torch, cudnn, f"{release.min_cudnn} or newer", release.source)
    return Fits()


def brought_by(torch: str, cuda_major: int) -> tuple[Version, ...]:
    """The cuDNNs that torch's wheels of that CUDA ask for; none where the release is not in the tables."""
    try:
        row = torch_release(torch)
    except UnknownName:
        return ()
    return tuple(each.cudnn for each in row.variants if each.cuda.major == cuda_major and each.cudnn)


def _does_not_compile(torch: str, cudnn: Version, need: str, source: str) -> Clash:
    sentence = f"torch {torch} does not compile with cuDNN {cudnn}: it needs cuDNN {need}"
    change = Alternative(what="cudnn", value=need, text=f"take a cuDNN {need}")
    return Clash(sentence=sentence, source=source, changes=(change,))


def cudnns_for(cuda_major: int) -> list[Version]:
    """The releases of cuDNN that are made for a CUDA, the oldest first."""
    return [row.version for row in releases() if cuda_major in row.cuda_majors and not row.yanked]


def cudnn_evidence(version: Version) -> Evidence | None:
    """How it is known which code this cuDNN holds; None: it is not in the tables."""
    row = row_of(version)
    return row.evidence if row else None


def named_cudnn(version: Version) -> Version | None:
    """The release that a number means, in full: `8.7` is 8.7.0.84."""
    row = row_of(version)
    return row.version if row else None


def same_release(found: Version, wanted: Version) -> bool:
    """Is the cuDNN that was found the one that is wanted? A header says 8.7.0, an archive is called 8.7.0.84.

    Three numbers name a release: a bare `8` or `8.7` off a file's name says too little to be 8.7.0.
    """
    asked = wanted.parts[:3]
    return found.parts[: len(asked)] == asked


@cached
def math_serves(cuda: Version, card: Capability) -> Judgement:
    """cuBLAS, cuFFT, cuSOLVER, cuSPARSE and cuRAND of a toolkit.

    They were opened for the first and last toolkit of each major, so their floor is known for all of it; upwards they
    reach as far as their toolkit does. On a card newer than that their PTX may run: that was never tried.
    """
    ours = f"-cu{cuda.major}"
    rows = [each for each in math_libraries() if each.package.endswith(ours)]
    if cuda.major >= 13:
        rows = [each for each in math_libraries() if "-cu1" not in each.package]
    said = f"cuBLAS and the other libraries of CUDA {cuda} have code for {card.sm}"
    if rows and card < max(each.floor for each in rows):
        return Clash(sentence=f"no {said}", source="the GPU code of NVIDIA's libraries on the package index")
    return Fits() if rows and toolkit(cuda).compiles_for(card) else Unknown(missing=f"whether {said} is not known")


@cached
def last_cudnn(card: Capability) -> Version | None:
    """The last cuDNN that holds code for a card; None when the newest still does, or when none ever did."""
    rows = [row.version for row in releases()]
    if _holds(rows[-1], card, 11):
        return None
    held = next((version for version in reversed(rows) if _holds(version, card, 11)), None)
    # Before the package index had it: the surest of a run that NVIDIA documents together is its first.
    return held or next((row.first for row in reversed(families()) if _holds(row.first, card, 10)), None)


def last_cudnn_of(cards: Iterable[Capability]) -> Version | None:
    """The last that holds code for all of them."""
    return min((last for card in cards if (last := last_cudnn(card))), default=None)


def _holds(version: Version, card: Capability, cuda_major: int) -> bool | None:
    row = row_of(version)
    if row is not None:
        return row.serves(card) if row.targets is not None else _between(row.version, card)
    short = version.release
    family = next((row for row in families() if row.first <= short <= row.last), None)
    if family is None or short > releases()[-1].version:
        return None
    floor = family.min_capability_cuda10 if cuda_major == 10 and family.min_capability_cuda10 else family.min_capability
    return card >= floor


def _between(version: Version, card: Capability) -> bool | None:
    """For a release that was not opened: what both opened neighbours say, if they agree."""
    opened = [row for row in releases() if row.targets is not None]
    below = next((row for row in reversed(opened) if row.version < version), None)
    above = next((row for row in opened if row.version > version), None)
    answers = {row.serves(card) for row in (below, above) if row is not None}
    return answers.pop() if len(answers) == 1 else None
