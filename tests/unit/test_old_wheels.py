"""The Linux wheels of 1.0 to 1.9: what an owner of an old card hears of them."""

from __future__ import annotations

from rekindle.compat.old_wheels import share, spoken
from rekindle.knowledge.gpu.capability import Capability, Coverage
from rekindle.knowledge.torch.torch_wheels import old_wheels
from support.command import rekindle_command


def test_a_few_containers_are_no_wheel_for_the_card() -> None:
    """1.2.0 has sm_30 code, as lists of all its targets say; it is in 8 of 731 containers."""
    row = next(row for row in old_wheels() if row.version == "1.2.0")
    found = share(row, Capability(3, 0))
    assert (found.coverage, found.runs, found.containers) == (Coverage.PARTIAL, 8, 731)
    assert spoken(Capability(3, 0)).startswith("none; the most is 1.2.0 in 8 of 731")
    assert spoken(Capability(3, 5)).startswith("1.2.0 (Python 3.5 to 3.7) in all but 15 of 731 containers")
    assert spoken(Capability(6, 1)) == "1.9.1 (Python 3.6 to 3.9) and 9 more"
    assert spoken(Capability(2, 1)).startswith("none of the ")


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
    seen = rekindle_command("plan", "--gpu", "GTX 680", "--torch", "1.4.0")
    assert "older than Rekindle's data" in seen.err
    assert "rekindle gpu" in seen.err
