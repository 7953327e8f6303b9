"""What the tables say of an architecture that a log asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.diagnose.facts import Facts, present
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu.capabilities import on_boards_only
from rekindle.knowledge.torch import releases
from rekindle.model.card import Capability

_ASKED = re.compile(r"(?:sm|compute|lto)_(\d{2,3})[af]?\Z")


def architecture_asked_for(text: str) -> Capability | None:
    """`sm_120a`, `compute_61` and `8.8` as a capability; None where it is none."""
    match = _ASKED.match(text)
    try:
        return Capability.parse(match[1] if match else text)
    except ValueError:
        return None


def values(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    found = _of_toolkits(fields, facts) | _of_card(facts)
    return found | _of_torch(fields["arch_dotted"], facts) if "arch_dotted" in fields else found


def _of_toolkits(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    # `Hopper` is 9.0, to releases that know the name.
    numbers = releases.taken_by(None).extension_names.get(fields.get("arch_name", ""), "").partition("+")[0]
    named = {"arch_name_number": numbers} if numbers and ";" not in numbers else {}
    text = fields.get("arch_asked") or named.get("arch_name_number") or f"sm_{fields.get('arch_number', '')}"
    capability = architecture_asked_for(text)
    if capability is None or "arch_dotted" in fields:
        return {}
    here = toolkit(facts.cuda) if facts.cuda else None
    triton = releases.first_triton(capability)
    found = present(
        arch_first=_first_for(capability),
        # nvcc says it does not know what the named toolkit knows: another nvcc spoke.
        knowing_cuda=here.version if here is not None and here.has_target(capability) else None,
        own_arch=capability.sm if capability in facts.gpus else None,
        triton_first=triton and triton.triton,
        triton_torch=triton and triton.torch,
        runs_as=_runs_as(capability, here),
        arch_flag=f"compute_{capability.major}{capability.minor}",
    )
    return named | found | _direction(capability, Version(facts.cuda) if facts.cuda else None)


def _runs_as(capability: Capability, here: toolkits.Toolkit | None) -> Capability | None:
    """An older number of the same generation, whose code runs on the card too: 8.6 for 8.9."""
    known = [target.capability for row in ([here] if here else toolkits.toolkits()) for target in row.plain]
    older = [each for each in known if each.major == capability.major and each.minor < capability.minor]
    first = _first_for(capability)
    # This nvcc is older than the first that knows the card: a number that came later (8.8 with CUDA 13) is no help.
    fitting = [
        each
        for each in older
        if not on_boards_only(each) and (here or first is None or (_first_for(each) or first) < first)
    ]
    return max(fitting, default=None)


def _direction(capability: Capability, here: Version | None) -> dict[str, str]:
    """Whether the toolkits have dropped it (`arch_last`) or do not have it yet (`arch_from`); nothing where unknown."""
    first, last = _first_for(capability), toolkits.last_toolkit_for(capability)
    if first is None or last is None:
        return {}
    early = here < first if here is not None else toolkits.still_supported(capability)
    return {"arch_from": str(first)} if early else {"arch_last": str(last.version)}


def _first_for(capability: Capability) -> Version | None:
    """The first CUDA that compiles for it; the tables of toolkits begin later than the older cards."""
    first = toolkits.first_toolkit_for(capability)
    return toolkits.early_target(capability) or (first.version if first else None)


def _of_card(facts: Facts) -> dict[str, str]:
    """The toolkits whose compilers know the card that the log names."""
    if not facts.gpus:
        return {}
    card = max(facts.gpus)
    first, last = _first_for(card), toolkits.last_toolkit_for(card)
    if last is not None and not toolkits.still_supported(card):
        return {"card_last": str(last.version)}
    return present(card_first=first)


def _of_torch(text: str, facts: Facts) -> dict[str, str]:
    """For `Unknown CUDA arch (8.8)`: what torch takes instead, and the first release that takes the number itself."""
    capability = architecture_asked_for(text)
    if capability is None:
        return {}
    lists = releases.taken_by(Version(facts.torch) if facts.torch else None)
    # Code of a Jetson is not promised to run on other cards of its generation.
    tegra = {number for name, number in lists.extension_names.items() if name.endswith("+Tegra")}
    older = [
        number
        for number in (architecture_asked_for(entry) for entry in lists.extension if entry not in tegra)
        if number is not None and number.major == capability.major and number < capability
    ]
    first = releases.first_taking(str(capability))
    found = {"torch_arch": str(capability), "torch_first": first} if first else {"never_arch": str(capability)}
    return found | present(torch_takes=max(older, default=None))


def toolkit(version: str) -> toolkits.Toolkit | None:
    """None where the tables do not have it."""
    try:
        return toolkits.toolkit(version)
    except (RekindleError, ValueError):
        return None
