"""The verdict, scenario by scenario. The right answers are derived by hand in `tests/scenarios/*.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle import codec
from rekindle.stack.resolver import Verdict, resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.wish import Prefer, Wish, named
from rekindle.version import Version

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
        assert expect.pop("driver") in (route.driver or "")
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
    situation = named(["Tesla K40c"], system="windows")
    quiet = resolve(situation, Wish())
    assert quiet.recommended.route is RouteKind.SOURCE_BUILD
    assert any("theIvanR" in each.sentence for each in quiet.rejections if each.rule == "community-consent")
    asked = resolve(situation, Wish(community=True))
    assert asked.recommended.route is RouteKind.COMMUNITY
    assert asked.recommended.builder is not None


def _resolved(scenario: dict[str, Any]) -> Verdict:
    situation = named(
        scenario["gpus"],
        system=scenario["os"],
        driver=scenario.get("driver"),
        python=scenario.get("python"),
    )
    wish = Wish(
        torch=scenario.get("torch"),
        cuda=Version(scenario["cuda"]) if "cuda" in scenario else None,
        toolset=Version(scenario["toolset"]) if "toolset" in scenario else None,
        prefer=Prefer(scenario.get("prefer", "newest")),
        configured_index=scenario.get("configured_index", False),
    )
    if "glibc" in scenario:
        situation = msgspec.structs.replace(situation, glibc=Version(scenario["glibc"]))
    return resolve(situation, wish)
