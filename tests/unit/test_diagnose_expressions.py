"""The conditions of the data: what they may say, and what they say of what is not known."""

from __future__ import annotations

import pytest

from rekindle.core.errors import BadInput
from rekindle.diagnose.expressions import World, holds, names
from rekindle.model.card import Capability

WORLD = World(
    fields={"said": "error: CUBLAS_STATUS_NOT_SUPPORTED", "ptx_needs": "sm_80"},
    values={"package": "torch"},
    facts={"os": "linux", "card": Capability(6, 1), "docker": True, "wsl": None, "bits": 32, "torch": "2.10.0"},
)


@pytest.mark.parametrize(
    ("expression", "right"),
    [
        ("docker", True),
        ("wsl", False),
        ("not wsl and docker", True),
        ("wsl or docker and not os", False),
        ("(wsl or docker) and os", True),
        ('said ~ "CUBLAS_\\w+_NOT"', True),
        ('not said ~ "CUDNN"', True),
        ("card < 7.0", True),
        ("card >= 6.1 and card <= 6.1", True),
        ("card < ptx_needs", True),
        ("torch >= 2.9", True),
        ("bits == 32", True),
        ('os == "windows"', False),
        ('os != "windows"', True),
        ('shell != "cmd"', False),
        ("driver < 470", False),
        ("not driver < 470", True),
        ('package == "torch"', True),
    ],
)
def test_what_holds(expression: str, right: bool) -> None:
    assert holds(expression, WORLD) is right


@pytest.mark.parametrize(
    "expression", ["", "and docker", "docker or", "(docker", "docker)", 'said ~ "open', "said ~", "a & b"]
)
def test_what_is_no_condition(expression: str) -> None:
    with pytest.raises(BadInput, match="is not a condition"):
        holds(expression, WORLD)


def test_a_term_stands_for_its_expression() -> None:
    assert names("torch_itself and not card") == {"failing", "card"}
