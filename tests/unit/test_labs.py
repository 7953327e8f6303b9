"""A lab's machines: the fewest stacks that nobody regrets, and a lock for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.stack import nodes
from rekindle.stack.from_machine import asked
from rekindle.stack.situation import Situation, Wish
from support import labs
from support.command import rekindle_command


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labs.mixed(tmp_path_factory.mktemp("lab") / "nodes")


def places(folder: Path) -> dict[str, Situation]:
    return {file.stem: asked(snapshot=file) for file in sorted(folder.iterdir())}


def test_one_old_card_does_not_drag_the_others(lab: Path) -> None:
    found = nodes.resolve_all(places(lab), Wish())
    stacks = {node.name: f"{node.torch}+{node.variant}" for node in found.nodes}
    assert found.stacks == 3
    assert [name for name, stack in stacks.items() if stack == "2.3.1+cu118"] == ["node40"]
    assert [name for name, stack in stacks.items() if stack == "2.11.0+cu128"] == ["node36", "node37"]
    assert sum(stack == "2.14.1+cu126" for stack in stacks.values()) == 37
    kepler = next(each for each in found.apart if each.machines == ("node40",))
    assert (kepler.what, kepler.others, kepler.torch, kepler.releases) == ("Tesla K80", 37, "2.3.1", 11)


def test_within_a_wide_limit_they_share_what_serves_all(lab: Path) -> None:
    """With eleven releases allowed two stacks do; who can takes the RTX 5090's, which is nearer to its own."""
    found = nodes.resolve_all(places(lab), Wish(), within=11)
    assert found.stacks == 2
    assert {node.torch for node in found.nodes} == {"2.3.1", "2.11.0"}
    assert sum(node.torch == "2.3.1" for node in found.nodes) == 14
    assert {node.alone for node in found.nodes if node.torch == "2.3.1"} == {"2.14.1", None}


def test_equal_machines_are_one_question(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = []
    real = nodes.resolve

    def counted(place: Situation, wish: Wish, *, as_it_is: bool) -> object:
        asked_for.append(place)
        return real(place, wish, as_it_is=as_it_is)

    monkeypatch.setattr(nodes, "resolve", counted)
    nodes.resolve_all(places(lab), Wish())
    assert len(asked_for) == len(labs.MIXED)


def test_the_table_has_a_line_for_each_stack_and_says_the_price(lab: Path) -> None:
    said = rekindle_command("plan", "--machine", str(lab)).out
    table, _, rest = said.partition("\n\n")
    lines = table.splitlines()
    assert len(lines) == 2 + 3
    assert max(map(len, lines)) <= 100
    assert "80x A100-SXM4-80GB" in lines[2] and lines[4].endswith("2x Tesla K80")
    assert rest.count("torch==2.14.1+cu126") == 1
    assert "Tesla K80. It would cost the 37 other machines 11 releases" in " ".join(rest.split())
