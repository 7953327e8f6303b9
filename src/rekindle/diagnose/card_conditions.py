"""The conditions of a fix that depend on the card, the driver, and what CUDA's libraries say at run time."""

from __future__ import annotations

import re

from rekindle.diagnose.facts import Facts
from rekindle.knowledge.gpu.capability import Capability

_HALF_ATOMICS = Capability(7, 0)
_BFLOAT16 = Capability(8, 0)

# fmt: off
CONDITIONS = frozenset({
    "asks_bf16", "asks_flash", "asks_fp8", "asks_other", "bf16", "branch_dropped", "card_below_70", "card_below_80",
    "card_from_70", "cublas_other", "cublas_value", "engine_open", "module_open", "no_engine", "not_bf16",
    "not_supported", "nouveau", "off_the_bus", "open_modules", "secure_boot", "tcc",
})
# fmt: on


def holding(said: str, facts: Facts) -> dict[str, bool]:
    """`said` is the text of the lines that show the cause."""
    return _of_card(facts) | _of_driver(said, facts) | _of_math(said)


def _of_card(facts: Facts) -> dict[str, bool]:
    card = max(facts.gpus) if facts.gpus else None
    return {
        "card_below_70": card is not None and card < _HALF_ATOMICS,
        "card_from_70": card is not None and card >= _HALF_ATOMICS,
        "card_below_80": card is not None and card < _BFLOAT16,
    }


def _of_driver(said: str, facts: Facts) -> dict[str, bool]:
    """Why a driver does not run, where its own words tell."""
    found = {
        "branch_dropped": any(
            word in said for word in ("will ignore this GPU", "egacy", "supported through the NVIDIA")
        ),
        "open_modules": "open" in said and "NVRM" in said,
        "secure_boot": "Key was rejected" in said or facts.secure_boot is True,
        "off_the_bus": any(word in said for word in ("fallen off the bus", "Xid", "RmInitAdapter", "GPU is lost")),
        "nouveau": "nouveau" in said or "probe routine was not called" in said,
    }
    open_still = facts.wsl is not True and not any(found.values())
    return found | {"module_open": open_still, "tcc": facts.tcc is True}


def _of_math(said: str) -> dict[str, bool]:
    """What a call of cuDNN or cuBLAS could not do, by its status and its types."""
    bf16 = "R_16BF" in said
    asks = {
        "asks_bf16": re.search(r"(?i)bf16|bfloat16", said) is not None,
        "asks_flash": re.search(r"(?i)flash", said) is not None,
        "asks_fp8": re.search(r"(?i)fp8|fp4|float8", said) is not None,
    }
    value = "STATUS_INVALID_VALUE" in said
    unsupported = "_STATUS_NOT_SUPPORTED" in said
    engine = "unable to find an engine" in said or "valid cuDNN algorithm" in said
    return {
        "bf16": bf16 and unsupported,
        "not_bf16": not bf16,
        "not_supported": unsupported,
        "cublas_value": value,
        "cublas_other": not (value or unsupported),
        "no_engine": engine,
        "engine_open": not engine,
        **asks,
        "asks_other": not any(asks.values()),
    }
