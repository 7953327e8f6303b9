"""Whether the torch, and the cuDNN, that a log names have code for the card it names: from the tables, or not known."""

from __future__ import annotations

from rekindle.compat import package
from rekindle.compat.judgement import Clash, holds
from rekindle.compat.library_card import cudnn_serves, cudnns_for, last_cudnn
from rekindle.compat.torch_cuda import any_code
from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.inputs.versions import read_cudnn
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.torch import releases
from rekindle.model.card import Capability
from rekindle.model.platform import Platform
from rekindle.stack import offers

_SYSTEMS = ("linux", "windows")


def torch_lacks(torch: str, variant: str | None, system: str | None, card: Capability) -> bool | None:
    """`variant` is the `cu128` of `2.8.0+cu128`; without it every line of the release has to agree."""
    if torch in releases.early():
        return _before_tables(torch, variant, card)  # what is inside them beside torch's own kernels is not told apart
    try:
        torch = releases.full_version(torch)
        found = [
            offer
            for each in ([system] if system else _SYSTEMS)
            for offer in offers.official_of(torch, Platform(each, "x86_64"))
            if variant in (None, offer.variant)
        ]
    except RekindleError:
        return _before_tables(torch, variant, card)
    if not found:
        return _before_tables(torch, variant, card)
    # The largest library decides, as in the plan.
    largest = [(offer, max(offer.code, key=lambda code: code.containers)) for offer in found if offer.code]
    answers = {offer.served(code, card).coverage is not Coverage.SERVES for offer, code in largest}
    return answers.pop() if len(answers) == 1 else None


def _before_tables(torch: str, variant: str | None, card: Capability) -> bool | None:
    """True where no CUDA of that time knew the card's generation; code of another card of it would run."""
    return True if isinstance(any_code(torch, variant, card), Clash) else None


def cudnn_lacks(torch: str | None, variant: str | None, said: str | None, card: Capability) -> bool | None:
    """`said` is the cuDNN that the log itself names (`91002`, `8.9.2`); otherwise it is the one of torch's wheel."""
    version = read_cudnn(said) if said else None
    known = release(torch) if torch else None
    if version is None and known is not None and variant:
        row = known.variant(variant)
        version = row.cudnn if row else None
    if version is None:
        return None
    served = holds(cudnn_serves(version, card))
    return None if served is None else not served


def package_lacks(asked: str, card: Capability) -> bool:
    """`asked` as pip takes it: `flash-attn==2.7.3`."""
    name, _, version = asked.partition("==")
    return isinstance(package.runs_on(name, Version.find(version), card), Clash)


def never_in_cudnn(card: Capability) -> bool:
    """No cuDNN of the tables ever held its code."""
    return last_cudnn(card) is None and isinstance(cudnn_serves(cudnns_for(13)[-1], card), Clash)


def release(torch: str) -> releases.TorchRelease | None:
    try:
        return releases.torch_release(torch)
    except RekindleError:
        return None
