"""Which code runs on which card, tested over every pair, against the rule written out a second time."""

from __future__ import annotations

import itertools

import pytest

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capabilities import known
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.model.card import Capability, Target

CARDS = known()
FAMILIES = {"10.0": {"10.0", "10.3"}, "10.3": {"10.3"}, "12.0": {"12.0", "12.1"}, "12.1": {"12.1"}, "11.0": {"11.0"}}


def test_every_cubin_on_every_card() -> None:
    for made_for, card in itertools.product(CARDS, CARDS):
        expected = made_for.major == card.major and card.minor >= made_for.minor
        assert (runs(Target(made_for), card) is Runs.NATIVE) == expected, (made_for, card)


def test_every_ptx_on_every_card() -> None:
    old, new = Version("7.4"), Version("8.0")
    for made_for, card in itertools.product(CARDS, CARDS):
        target = Target(made_for, ptx=True)
        newer_or_equal = (card.major, card.minor) >= (made_for.major, made_for.minor)
        assert (runs(target, card, ptx_isa=old, driver_ptx=new) is Runs.JIT) == newer_or_equal
        assert runs(target, card, ptx_isa=new, driver_ptx=old) is Runs.NO
        assert runs(target, card) is (Runs.JIT_UNVERIFIED if newer_or_equal else Runs.NO)


def test_suffix_a_runs_on_exactly_that_card() -> None:
    for made_for, card, ptx in itertools.product(CARDS, CARDS, (False, True)):
        assert (runs(Target(made_for, ptx=ptx, suffix="a"), card) is Runs.NO) == (made_for != card)


def test_suffix_f_runs_on_its_family() -> None:
    for made_for, card in itertools.product(CARDS, CARDS):
        family = FAMILIES.get(str(made_for), {str(made_for)})
        assert (runs(Target(made_for, suffix="f"), card) is Runs.NATIVE) == (str(card) in family)


@pytest.mark.parametrize(
    ("target", "card", "answer"),
    [
        ("sm_35", "3.7", Runs.NATIVE),  # a K80 runs code for a K40
        ("sm_37", "3.5", Runs.NO),  # and not the other way round
        ("compute_37", "3.5", Runs.NO),  # 3.7+PTX does not serve a K40
        ("sm_50", "5.2", Runs.NATIVE),
        ("sm_60", "6.1", Runs.NATIVE),
        ("sm_100", "12.0", Runs.NO),
        ("sm_90a", "9.0", Runs.NATIVE),
    ],
)
def test_the_cases_people_get_wrong(target: str, card: str, answer: Runs) -> None:
    assert runs(Target.parse(target), Capability.parse(card)) is answer


@pytest.mark.parametrize("text", ["3.5", "sm_35", "compute_35", "35", "SM_35"])
def test_a_capability_is_read_in_every_spelling(text: str) -> None:
    assert Capability.parse(text) == Capability(3, 5)


@pytest.mark.parametrize("text", ["", "3", "3.55", "sm_", "sm_3x", "three", "1234", "³·⁵"])
def test_what_is_no_capability_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a compute capability"):
        Capability.parse(text)
