"""The walks of `tools.walks`: which rooms a question visits, and that nothing known is read again."""

from __future__ import annotations

import pytest

from rekindle.knowledge import tables
from tools import walks


@pytest.mark.parametrize("name", ["gpu", "wheel"])
def test_nothing_is_read_twice_on_the_way(name: str) -> None:
    tables.forget()
    _, walk = next(walks.walks([name]))
    assert walk.code == 0
    assert walk.twice == {}


def test_a_card_never_leads_into_the_build_and_a_wheel_never_to_the_machine() -> None:
    tables.forget()
    rooms = {name: set(walk.calls) for name, walk in walks.walks(["gpu", "wheel"])}
    assert {"knowledge.gpu", "stack"} <= rooms["gpu"]
    assert not [room for room in rooms["gpu"] if room.startswith(("build", "machine", "review", "diagnose"))]
    assert {"wheels.repair", "formats"} <= rooms["wheel"]
    assert not [room for room in rooms["wheel"] if room.startswith(("build", "machine", "stack"))]


def test_a_second_read_is_seen(tmp_path: object) -> None:
    walk = walks.Walk()
    walk.read.update({"gpu/gpus.json": 2, "notes.txt": 3, "torch/torch_releases.json": 1})
    assert walk.twice == {"gpu/gpus.json": 2}, "what is read again on purpose is named in ON_PURPOSE"
