"""Files that version 0.2 wrote are still read."""

from __future__ import annotations

from pathlib import Path

from rekindle.install import conda
from rekindle.stack import plan as lock
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from support.command import rekindle_command

FOLDER = Path(__file__).parents[1] / "data" / "from-0.2"


def test_every_kind_of_plan_is_read_and_compared() -> None:
    plans = {path.stem: lock.read(path) for path in sorted(FOLDER.glob("plan-*.toml"))}
    assert {name: plan.route for name, plan in plans.items()} == {
        "plan-conda": RouteKind.CONDA_FORGE,
        "plan-official": RouteKind.OFFICIAL_WHEEL,
        "plan-source": RouteKind.SOURCE_BUILD,
    }
    for name in plans:
        assert rekindle_command("plan", "--from", str(FOLDER / f"{name}.toml"), "--json").code in (0, 8), name


def test_a_command_in_a_file_is_shown_and_never_taken_apart() -> None:
    plan = lock.read(FOLDER / "plan-conda.toml")
    assert plan.commands and all(command.told and not command.words for command in plan.commands)
    route = Route(**plan.facts())
    assert conda.packages(route) == ("python=3.12", "pytorch=2.4.1=cuda*", "cuda-version=11.8")


def test_a_source_plan_of_0_2_still_dry_runs() -> None:
    machine = Path(__file__).parents[1] / "machines" / "k40c-ready-windows.json"
    seen = rekindle_command("build", str(FOLDER / "plan-source.toml"), "--machine", str(machine), "--dry-run")
    assert seen.code in (0, 6) and "internal error" not in seen.err
