"""Options that several verbs take, spelled once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
gpus = click.option(
    "--gpu", "gpus", multiple=True, metavar="NAME", help="A card by name, PCI id or sm_XX. May be repeated."
)
system = click.option("--os", "system", type=click.Choice(["windows", "linux"]), help="The system to answer for.")
python = click.option("--python", metavar="X.Y", help="The Python to answer for, e.g. 3.11.")
torch = click.option("--torch", metavar="X.Y.Z", help="The PyTorch release.")
cuda = click.option("--cuda", metavar="X.Y", help="The CUDA toolkit.")
driver = click.option("--driver", metavar="VERSION", help="The NVIDIA driver, e.g. 472.50.")
toolset = click.option("--toolset", metavar="14.X", help="The MSVC toolset.")
profile = click.option("--profile", type=click.Choice(["fast", "compat", "minimal"]), help="What to build in.")
machine = click.option(
    "--machine",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Answer for the machine recorded in this snapshot instead of this one.",
)
shelf = click.option(
    "--shelf",
    type=click.Path(path_type=Path),
    metavar="DIR",
    envvar="REKINDLE_SHELF",
    help="The folder of your own wheels; also REKINDLE_SHELF.",
)
dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")


def output(help: str) -> Callable[[F], F]:
    return click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PATH", help=help)
