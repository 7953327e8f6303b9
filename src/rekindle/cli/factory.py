"""`rekindle factory`: a repository that builds wheels on hosted runners and publishes them."""

from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console, files


@click.group("factory")
def command() -> None:
    """Set up a repository that builds and publishes wheels."""


@command.command("init")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@options.path("--matrix", "FILE", "Your own matrix [PyTorch for orphaned cards].")
@click.option("--rekindle", metavar="REQUIREMENT", help="What pip installs Rekindle from.")
@click.option("--accept-licence", is_flag=True, help="You accept NVIDIA's terms for the runners' toolchains.")
@options.as_json
def init_command(folder: Path, matrix: Path | None, rekindle: str | None, accept_licence: bool, as_json: bool) -> int:
    """Write the template of a factory into DIR: matrix, workflow, and how to press the button."""
    from rekindle.fleet.factory import template

    question = "The runners install CUDA by NVIDIA's terms (docs.nvidia.com/cuda/eula). Do you accept them?"
    made = template.init(
        folder, matrix=matrix, rekindle=rekindle, accept=lambda: accept_licence or options.confirmed(question)
    )
    if as_json:
        console.out_json(made)
        return 0
    name = folder.resolve().name or made.folder
    console.out(f"{name}: {console.plural(made.jobs, 'job')} in {console.plural(made.rounds, 'round')}")
    for name in made.files:
        console.out(f"  {name}")
    console.out("What is left to do:")
    for number, step in enumerate(made.steps, 1):
        console.out(console.wrap(f"{number}. {step}", first="  ", indent="     "))
    return 0


@command.command("publish")
@click.argument("matrix", type=click.Path(path_type=Path), default="matrix.toml")
@options.shelf
@options.output("The site's folder [site].")
@click.option("--base", required=True, metavar="URL", help="Where the wheels will lie.")
@click.option("--from", "site", metavar="URL", help="The site as it is: what it has is kept.")
@options.path("--list", "FILE", "Write what to upload there.", name="listing", written=True)
@options.as_json
def publish_command(
    matrix: Path, shelf: Path | None, output: Path | None, base: str, site: str | None, listing: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Write the index, the statements and the coverage page of a shelf as static files."""
    from rekindle.core.paths import shelf_folder
    from rekindle.fleet import planning
    from rekindle.fleet.factory import site as sites

    place = (shelf or shelf_folder()).resolve()
    before = sites.bring(site, place) if site else None
    plan = planning.make(matrix, shelf_folder=place, published=before.hashes if before else ()).plan
    made = sites.publish(place, output or Path("site"), plan, base=base, before=before)
    if listing is not None:
        files.write_text(listing, "".join(f"{name}\n" for name in made.upload))
    if as_json:
        console.out_json(made)
    else:
        console.out(f"{made.folder}: {made.wheels} wheels, {len(made.upload)} files to upload to {base}")
        console.out(", ".join(f"{count} {state}" for state, count in sorted(made.coverage.items())))
    return 0
