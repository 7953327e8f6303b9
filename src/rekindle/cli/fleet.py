"""`rekindle fleet`: the same build for a matrix, over many machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rekindle.cli import options
from rekindle.core import console

if TYPE_CHECKING:
    from rekindle.fleet.planning import FleetPlan

matrix = click.argument("matrix", type=click.Path(path_type=Path), metavar="MATRIX", default="matrix.toml")
machines = click.option(
    "--machine", "machines", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="A snapshot that stands for its cards, system and Python. May be repeated.",
)  # fmt: skip


@click.group("fleet")
def command() -> None:
    """Build a matrix of wheels on many machines."""


@command.command("plan")
@matrix
@machines
@options.shelf
@click.option("--workers", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Machines to plan for.")
@options.as_json
def plan_command(matrix: Path, machines: tuple[Path, ...], shelf: Path | None, workers: int, as_json: bool) -> int:
    """Every job of MATRIX: what would be built, in which order, and why the rest would not. Nothing is run."""
    from rekindle.core.paths import shelf_folder
    from rekindle.fleet import planning

    made = planning.make(matrix, machines=machines, shelf_folder=shelf or shelf_folder(), workers=workers).plan
    console.out_json(made) if as_json else _print_plan(made)
    return 0


def _print_plan(plan: FleetPlan) -> None:
    from rekindle.fleet import view

    for line in view.plan_lines(plan):
        console.out(line)
