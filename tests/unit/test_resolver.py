"""The verdict, scenario by scenario. The right answers are derived by hand in `tests/scenarios/*.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle.compat.gpu_code import overall, own, served
from rekindle.core import codec
from rekindle.core.version import Version
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.tables import Evidence
from rekindle.knowledge.torch.torch_wheels import torch_wheels
from rekindle.model.platform import LINUX, Platform
from rekindle.stack import offers, prebuilt
from rekindle.stack.candidates import READY
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.search import routes_of
from rekindle.stack.situation import Prefer, Wish, situation_from_options
from support.command import rekindle_command

FILES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.toml"))
SCENARIOS = [row for file in FILES for row in codec.from_toml(file.read_bytes(), dict[str, Any])["scenario"]]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[row["id"] for row in SCENARIOS])
def test_scenario(scenario: dict[str, Any]) -> None:
    expect = dict(scenario["expect"])
    verdict = _resolved(scenario)
    route = verdict.recommended
    assert route.route.value == expect.pop("route"), route.summary
    for key in ("torch", "python", "toolset", "arch_list", "numpy", "torchvision", "torchaudio", "variant"):
        if key in expect:
            assert getattr(route, key) == expect.pop(key)
    if "cuda" in expect:
        assert str(route.cuda) == expect.pop("cuda")
    if "cudnn" in expect:
        assert route.cudnn is not None
        assert route.cudnn.starts_with(Version(expect.pop("cudnn")))
    if "driver" in expect:
        assert expect.pop("driver") in f"{route.driver} {route.driver_detail}"
    if "loses" in expect:
        assert bool(route.loses) == expect.pop("loses"), route.loses
    if "command" in expect:
        assert expect.pop("command") in "\n".join(route.commands)
    if "says" in expect:
        said = "\n".join([route.summary, *route.why, *route.loses, route.change.text if route.change else ""])
        assert expect.pop("says") in said
    if "change" in expect:
        assert route.change is not None
        assert route.change.what == expect.pop("change")
    if "candidates" in expect:
        assert [f"{each.capability} {each.route.value}" for each in verdict.candidates] == expect.pop("candidates")
    assert not expect, f"not checked: {expect}"


def test_every_scenario_has_its_derivation() -> None:
    assert len(SCENARIOS) >= 80
    assert all(len(row["derivation"].strip()) > 35 for row in SCENARIOS)
    assert len({row["id"] for row in SCENARIOS}) == len(SCENARIOS)


def test_a_community_wheel_is_never_recommended_silently() -> None:
    situation = situation_from_options(["Tesla K40c"], system="windows")
    quiet = resolve(situation, Wish())
    assert quiet.recommended.route is RouteKind.SOURCE_BUILD
    assert any("theIvanR" in each.sentence for each in quiet.rejections if each.rule == "community-consent")
    asked = resolve(situation, Wish(community=True))
    assert asked.recommended.route is RouteKind.COMMUNITY
    assert asked.recommended.builder is not None


def test_minutes_by_a_stranger_are_named_beside_hours_of_building() -> None:
    quiet = resolve(situation_from_options(["Tesla K40c"], system="windows"), Wish())
    other = next(each for each in quiet.alternatives if each.route.route is RouteKind.COMMUNITY)
    assert other.wins == "quickest"
    assert [str(each) for each in other.route.commands] == [
        'rekindle plan --gpu "Tesla K40c" --os windows --torch 2.7.1 --python 3.11 --community'
    ]
    # Where something ready-made runs, no stranger is needed.
    ready = resolve(situation_from_options(["GTX 1080 Ti"], system="windows"), Wish())
    assert not any(each.route.route is RouteKind.COMMUNITY for each in ready.alternatives)


def _resolved(scenario: dict[str, Any]) -> Verdict:
    situation = situation_from_options(
        scenario["gpus"],
        system=scenario["os"],
        driver=scenario.get("driver"),
        python=scenario.get("python"),
    )
    wish = Wish(
        torch=scenario.get("torch"),
        cuda=Version(scenario["cuda"]) if "cuda" in scenario else None,
        toolset=Version(scenario["toolset"]) if "toolset" in scenario else None,
        prefer=Prefer(scenario.get("prefer", "cheapest")),
        configured_index=scenario.get("configured_index", False),
    )
    if "glibc" in scenario:
        situation = msgspec.structs.replace(situation, glibc=Version(scenario["glibc"]))
    return resolve(situation, wish)


def test_serves_equals_the_coverage_of_the_wheels_that_were_read() -> None:
    """For every wheel of the observed table and every capability, by the two roads to the answer."""
    rows = [row for row in torch_wheels() if row.cuda is not None]
    assert len(rows) >= 15
    for row in rows:
        version = row.version.partition("+")[0]
        offer = next(
            each
            for each in offers.official_of(version, Platform(row.system, row.machine))
            if each.evidence is Evidence.BINARY and row.cuda is not None and each.cuda == row.cuda.major_minor
        )
        for capability in capabilities.known():
            parts = (served(code, capability, torch=Version(version)).coverage for code in own(row.gpu_code))
            assert prebuilt.coverage(offer, capability) is overall(parts), (version, capability)


def test_a_wheel_with_a_library_that_lacks_the_card_costs_something() -> None:
    """Linear algebra of the CUDA 13 wheels for Linux has no whole code for Turing; the CUDA 12 line is not known to."""
    verdict = resolve(situation_from_options(["RTX 2080 Ti"], system="linux"), Wish(torch="2.15.0"))
    wheel = next(each for each in verdict.routes if each.route is RouteKind.OFFICIAL_WHEEL)
    assert "libtorch_cuda_linalg" in wheel.loses[0]
    # One operation ends with an error: no reason for hours of building, where that release was asked for.
    assert verdict.recommended.route is RouteKind.OFFICIAL_WHEEL
    assert [each.route.route for each in verdict.alternatives] == [RouteKind.SOURCE_BUILD, RouteKind.OFFICIAL_WHEEL]
    newest = resolve(situation_from_options(["RTX 2080 Ti"], system="linux"), Wish()).recommended
    assert (newest.torch, str(newest.cuda)) == ("2.14.1", "12.6")


def test_a_kepler_card_is_not_served_by_a_part_of_a_wheel() -> None:
    verdict = resolve(situation_from_options(["Tesla K40c"], system="linux"), Wish(torch="1.13.1"))
    assert any(each.rule == "wheel-code-partial" for each in verdict.rejections)
    assert not any(each.route is RouteKind.OFFICIAL_WHEEL for each in verdict.routes)


def test_another_kind_of_machine_has_its_own_wheels() -> None:
    """The aarch64 wheels of the index are CUDA builds from 2.11 on, from sm_80 up; before that they are for the CPU."""
    h200 = resolve(situation_from_options(["H200"], system="linux", machine="aarch64"), Wish())
    assert (h200.recommended.route, h200.recommended.torch) == (RouteKind.OFFICIAL_WHEEL, "2.15.0")
    assert h200.recommended.commands[-1].startswith("pip install torch==2.15.0")
    v100 = resolve(situation_from_options(["Tesla V100-PCIE-16GB"], system="linux", machine="aarch64"), Wish())
    assert v100.recommended.route is RouteKind.CONDA_FORGE
    assert all(each.route is not RouteKind.OFFICIAL_WHEEL for each in v100.routes)


@pytest.mark.parametrize(
    ("card", "torch", "cuda", "driver", "expected"),
    [
        # R575 was released with CUDA 12.9 and compiles its PTX; R570, with 12.8, runs its native code only.
        ("RTX 5070", "2.6.0", "12.9", "575.57.08", "12.0+PTX"),
        ("RTX 5070", "2.6.0", "12.9", "570.86.10", "12.0"),
        # R470 knows CUDA 11.4's PTX. But every newer card has wheels of its own: a Kepler build carries none.
        ("Tesla K40c", "1.12.1", "11.4", "470.256.02", "3.5"),
        ("GTX 1080 Ti", "2.6.0", "12.6", "560.35.05", "6.1"),
        # The newest generation of CUDA 11.8 was 9.0.
        ("H100 PCIe", "2.0.1", "11.8", "520.61.05", "9.0+PTX"),
    ],
)
def test_ptx_goes_with_the_newest_generation_where_the_driver_compiles_it(
    card: str, torch: str, cuda: str, driver: str, expected: str
) -> None:
    found = situation_from_options([card], system="linux", driver=driver)
    verdict = resolve(found, Wish(torch=torch, cuda=Version(cuda)))
    routes = [route for route in (verdict.recommended, *verdict.routes) if route.route is RouteKind.SOURCE_BUILD]
    assert routes[0].arch_list == expected


def test_a_newer_release_that_works_too_is_not_said_to_be_impossible() -> None:
    """2.8 can be built for a K40c as well; that it does not build with CUDA 10.2 is no reason against it."""
    seen = rekindle_command("plan", "--gpu", "Tesla K40c", "--os", "windows", "--json").json()
    assert seen["recommended"]["torch"] == "2.7.1"
    assert seen["decisive"].startswith("not 2.8.0: it works by the same route and is less tested")


@pytest.mark.parametrize(("board", "vision"), [("Jetson TX2", "0.11.3"), ("Jetson AGX Orin", "0.20.0")])
def test_the_torchvision_of_a_jetson_takes_its_python(board: str, vision: str) -> None:
    """A TX2 has Python 3.6, which torchvision 0.12.0 refuses."""
    best = resolve(situation_from_options([board], system="linux"), Wish()).recommended
    assert any(f"--branch v{vision} " in line for line in best.commands)
    assert any(f"torchvision {vision} " in line for line in best.why)
    # It is installed without its dependencies, of which Pillow is the one that a board lacks.
    assert any("python3-pil" in each.need for each in best.missing)


def test_a_release_that_somebody_built_for_such_a_card_comes_before_a_newer_one() -> None:
    """A K10 was told to build 1.12.1, of which no build for 3.0 is known; 1.10.2 was built for it by others."""
    found = resolve(situation_from_options(["Tesla K10"], system="linux"), Wish())
    best = found.recommended
    assert (best.route, best.torch, str(best.cuda)) == (RouteKind.SOURCE_BUILD, "1.10.2", "10.2")
    assert any("built so for such a card by dizcza" in line for line in best.why)
    newer = resolve(situation_from_options(["Tesla K10"], system="linux"), Wish(torch="1.12.1")).recommended
    assert "the whole build: nobody is known to have built 1.12.1 for 3.0" in newer.unverified
    assert not any("whole build" in line for line in best.unverified)


@pytest.mark.parametrize(
    ("card", "torch", "variant"),
    [
        ("RTX 4090", "2.0.1", "cu118"),
        ("RTX 3090", "2.0.1", "cu117"),
        ("B300", "2.8.0", "cu129"),
        ("B200", "2.8.0", "cu128"),
        ("RTX 4090", "1.13.1", "cu117"),
    ],
)
def test_a_card_that_came_after_the_default_line_takes_the_first_that_knows_it(
    card: str, torch: str, variant: str
) -> None:
    """2.0.1 of CUDA 11.7 runs on Ada with the code of 8.6; the libraries of 11.8 have its own."""
    best = resolve(situation_from_options([card], system="linux"), Wish(torch=torch)).recommended
    assert best.variant == variant


def test_a_tag_promises_less_than_any_wheel_keeps() -> None:
    """`manylinux1` is glibc 2.5, and no wheel that was opened loads below 2.17: CentOS 6 was offered 2.6.0+cu118."""
    old = rekindle_command("plan", "--gpu", "RTX 2060", "--os", "CentOS 6")
    assert old.code == 5 and "2.12" in old.out and "2.17" in old.out and "source-build" not in old.out
    assert rekindle_command("plan", "--gpu", "RTX 2060", "--os", "CentOS 7").code == 0
    every = [each for place in (LINUX, Platform("linux", "aarch64")) for each in offers.official(place)]
    assert all(each.glibc is not None and each.glibc >= Version("2.17") for each in every)


@pytest.mark.parametrize("card", ["Tesla K40c", "GTX 1080 Ti", "RTX 5090"])
def test_what_is_ready_made_is_found_without_the_builds_from_source(card: str) -> None:
    situation = situation_from_options([card], system="linux", python="3.12")
    everything, _ = routes_of(situation, Wish())
    alone, _ = routes_of(situation, Wish(), ready=True)
    assert list(alone) == [route for route in everything if route.route in (*READY, RouteKind.COMMUNITY)]
