"""The Linux wheels of 1.0 to 1.9: what an owner of an old card hears of them."""

from __future__ import annotations

import pytest

from rekindle.compat.old_wheels import old_wheels_line, share
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.torch.torch_wheels import old_wheels
from rekindle.model.card import Capability
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Wish, situation_from_options
from support.command import rekindle_command


def test_a_few_containers_are_no_wheel_for_the_card() -> None:
    """1.2.0 has sm_30 code, as lists of all its targets say; it is in 8 of 731 containers."""
    row = next(row for row in old_wheels() if row.version == "1.2.0")
    found = share(row, Capability(3, 0))
    assert (found.coverage, found.runs, found.containers) == (Coverage.PARTIAL, 8, 731)
    assert old_wheels_line(Capability(3, 0)).startswith("none; the most is 1.2.0 in 8 of 731")
    assert old_wheels_line(Capability(3, 5)).startswith("1.2.0 (Python 3.5 to 3.7) in all but 15 of 731 containers")
    assert old_wheels_line(Capability(6, 1)) == "1.9.1 (Python 3.6 to 3.9) and 9 more"
    assert old_wheels_line(Capability(2, 1)).startswith("none of the ")


def test_the_stored_coverage_is_what_the_containers_say() -> None:
    for row in old_wheels():
        for capability, coverage in row.coverage.items():
            assert share(row, Capability.parse(capability)).coverage is coverage, (row.version, capability)


def test_gpu_and_plan_tell_it() -> None:
    card = rekindle_command("gpu", "GTX 680", "--json").json()
    assert any(each["torch"] == "1.2.0" and each["runs"] == 8 for each in card["old_wheels"])
    plan = rekindle_command("plan", "--gpu", "GTX 680", "--os", "linux", "--json").json()
    assert any("before 1.10" in note for note in plan["notes"])
    assert plan["recommended"]["route"] == "source-build"


def test_an_older_release_is_said_to_be_older_than_the_data() -> None:
    seen = rekindle_command("plan", "--gpu", "GTX 680", "--torch", "0.4.1")
    assert "older than Rekindle's data" in seen.err
    assert "rekindle gpu" in seen.err


def test_beside_a_known_early_release_its_neighbour_or_its_system_is_named() -> None:
    """1.2.0 was "older than the data", which named 1.2.0; 1.5.0 was refused though 1.5.1 answers."""
    near = rekindle_command("plan", "--gpu", "RTX 3070", "--os", "linux", "--torch", "1.5.0")
    assert near.code == 3 and "PyTorch 1.5.0 is not in Rekindle's data; of 1.5 it has 1.5.1" in near.err
    assert "`--torch 1.5.1`" in near.err and "older" not in near.err
    there = rekindle_command("plan", "--gpu", "RTX 2080", "--os", "windows", "--torch", "1.2.0")
    assert there.code == 3 and "of PyTorch 1.2.0 wheels for Linux alone are known" in there.err
    assert "older" not in there.err


@pytest.mark.parametrize(
    ("card", "torch", "cuda", "line"),
    [
        ("GTX 1080 Ti", "1.6.0", "10.2", ("torch==1.6.0", "torchvision==0.7.0", "torchaudio==0.6.0")),
        ("RTX 2080 Ti", "1.4.0", "10.1", ("torch==1.4.0", "torchvision==0.5.0", "torchaudio==0.4.0")),
        ("Tesla K40c", "1.2.0", "10.0", ("torch==1.2.0", "torchvision==0.4.0", "torchaudio==0.3.0")),
        ("GTX 1080", "1.1.0", "9.0", ("torch==1.1.0",)),
    ],
)
def test_a_release_before_the_tables_is_the_package_indexs_wheel(
    card: str, torch: str, cuda: str, line: tuple[str, ...]
) -> None:
    best = resolve(situation_from_options([card], system="linux"), Wish(torch=torch)).recommended
    assert (best.route, best.torch, str(best.cuda)) == (RouteKind.OFFICIAL_WHEEL, torch, cuda)
    assert best.commands[-1].words[-len(line) :] == line


def test_what_may_be_the_cudnn_inside_is_a_loss_to_name_and_no_refusal() -> None:
    best = resolve(situation_from_options(["Tesla V100"], system="linux"), Wish(torch="1.5.1")).recommended
    assert best.route is RouteKind.OFFICIAL_WHEEL
    assert any("715 of 728" in each and "UNVERIFIED" in each for each in best.loses)


@pytest.mark.parametrize("torch", ["1.4.0", "1.6.0"])
def test_where_a_paper_s_release_cannot_run_the_nearest_is_named(torch: str) -> None:
    """It was told to take the newest of all."""
    best = resolve(situation_from_options(["A100"], system="linux"), Wish(torch=torch)).recommended
    assert best.route is RouteKind.NONE
    assert best.change is not None and best.change.torch == "1.7.1"
