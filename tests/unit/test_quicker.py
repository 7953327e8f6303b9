"""Beside hours of building: what is ready in minutes after one change."""

from __future__ import annotations

from rekindle.stack.answers import verdict as text
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Prefer, Wish, named
from rekindle.stack.verdict import Verdict


def _asked(*cards: str, driver: str | None = None, **wish: object) -> Verdict:
    return resolve(named(cards, system="linux", driver=driver), Wish(**wish))  # type: ignore[arg-type]


def test_a_driver_spares_a_build() -> None:
    """An L40S on R550 was sent to a build of two hours; driver 580 makes the official wheel work."""
    found = _asked("L40S", driver="550.54.15", torch="2.15.0")
    assert found.recommended.route is RouteKind.SOURCE_BUILD and found.cheaper is not None
    assert (found.cheaper.route, found.cheaper.torch) == (RouteKind.OFFICIAL_WHEEL, "2.15.0")
    assert found.cheaper.change is not None and found.cheaper.change.what == "driver"
    assert "580.65.06" in found.cheaper.change.text and "administrator" in found.cheaper.change.text
    assert "first: update the driver" in text(found) and "--prefer quickest" not in text(found)


def test_a_display_card_costs_no_build() -> None:
    found = _asked("GT 710", "RTX 3060")
    assert found.cheaper is not None and found.cheaper.change is not None
    assert found.cheaper.change.text == "leave GeForce GT 710 out"
    assert found.cheaper.loses[0] == "GeForce GT 710 is not used"
    assert found.cheaper.route is RouteKind.OFFICIAL_WHEEL


def test_an_older_package_is_named_beside_the_build() -> None:
    """A K40c's ready-made package was line 67 of `--all`."""
    found = _asked("Tesla K40c")
    assert found.cheaper is not None and found.cheaper.route is RouteKind.CONDA_FORGE
    assert found.cheaper.change is None and "instead of" in found.cheaper.loses[0]


def test_complete_hides_it_and_nothing_is_quicker_than_a_wheel() -> None:
    assert _asked("Tesla K40c", prefer=Prefer.COMPLETE).cheaper is None
    assert _asked("RTX 4090").cheaper is None
