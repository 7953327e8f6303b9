"""What a factory signs: wheels that are here, and what an earlier list of its own says. Nobody else's word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.core import signing
from rekindle.core.errors import ChecksFailed
from rekindle.fleet import planning
from rekindle.fleet.factory import site as sites
from rekindle.fleet.planning import FleetPlan
from rekindle.wheels.shelf import index, shelf, store
from support.shelves import pure_wheel

BASE = "https://example.org/wheels"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetPlan:
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "own.pem"))
    (tmp_path / "m.toml").write_text('project = ["torch"]\ntorch = "2.7.1"\ngpu = "3.5"\n', encoding="utf-8")
    return planning.make(tmp_path / "m.toml").plan


def _published(folder: Path, site: Path, plan: FleetPlan, before: str | None = None) -> list[str]:
    """Everything again, and what the signed list names then."""
    sites.publish(folder, site, plan, base=BASE, before=sites.bring(before, folder) if before else None)
    data = (site / index.LISTING).read_bytes()
    keys = [key.public for key in [signing.own_key()] if key]
    index.signed_state(data, (site / index.SIGNED_LISTING).read_bytes(), keys, name="the list")
    return [wheel["file"] for wheel in json.loads(data)["wheels"]]


def test_what_was_published_before_is_kept_by_our_own_signature(tmp_path: Path, plan: FleetPlan) -> None:
    shelf.add(tmp_path / "one", [pure_wheel(tmp_path / "in")])
    first = _published(tmp_path / "one", tmp_path / "www", plan)
    shelf.add(tmp_path / "two", [pure_wheel(tmp_path / "in", version="2.0")])
    assert first == ["demo-1.0-py3-none-any.whl"]
    wanted = ["demo-1.0-py3-none-any.whl", "demo-2.0-py3-none-any.whl"]
    assert _published(tmp_path / "two", tmp_path / "new", plan, str(tmp_path / "www")) == wanted
    assert _published(tmp_path / "two", tmp_path / "new", plan) == wanted, "also by what lies in the folder already"


@pytest.mark.parametrize("signed", [None, "stranger.pem"])
@pytest.mark.parametrize("where", ["--from", "-o"])
def test_a_strangers_list_is_never_signed(
    tmp_path: Path, plan: FleetPlan, monkeypatch: pytest.MonkeyPatch, signed: str | None, where: str
) -> None:
    """A `factory.json` that anybody can write came back as a list that the factory's key vouched for."""
    shelf.add(tmp_path / "theirs", [pure_wheel(tmp_path / "in", project="evil")])
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / (signed or "own.pem")))
    _published(tmp_path / "theirs", tmp_path / "www", plan)
    (tmp_path / "www" / "factory.json").write_bytes((tmp_path / "www" / index.LISTING).read_bytes())
    if not signed:
        (tmp_path / "www" / index.SIGNED_LISTING).unlink()
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "own.pem"))
    shelf.add(tmp_path / "mine", [pure_wheel(tmp_path / "in")])
    site, before = (tmp_path / "www", None) if where == "-o" else (tmp_path / "site", str(tmp_path / "www"))
    assert _published(tmp_path / "mine", site, plan, before) == ["demo-1.0-py3-none-any.whl"]


def test_an_entry_without_its_wheel_or_changed_since_is_not_signed(tmp_path: Path, plan: FleetPlan) -> None:
    place = tmp_path / "shelf"
    (entry,) = shelf.add(place, [pure_wheel(tmp_path / "in")])
    listed = place / "wheels" / f"{entry.file}{store.ENTRY}"
    whole = listed.read_text(encoding="utf-8")
    listed.write_text(whole.replace(">=3.8", ">=2.0"), encoding="utf-8")
    with pytest.raises(ChecksFailed, match="is not what was signed"):
        sites.publish(place, tmp_path / "site", plan, base=BASE)
    listed.write_text(whole, encoding="utf-8")
    (place / "wheels" / entry.file).unlink()
    with pytest.raises(ChecksFailed, match="there is no `demo-1"):
        sites.publish(place, tmp_path / "site", plan, base=BASE)
