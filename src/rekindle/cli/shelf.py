from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.paths import shelf_folder


@click.group("shelf")
def command() -> None:
    """A folder of verified wheels that is a package index: pip can install from it."""


@command.command("add")
@click.argument("wheels", nargs=-1, required=True, metavar="WHEEL...", type=click.Path(path_type=Path))
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE", help="The verify report [beside the wheel].")
@options.shelf
@options.as_json
def add(wheels: tuple[Path, ...], report: Path | None, shelf: Path | None, as_json: bool) -> int:
    """Put verified wheels on the shelf, each with its report."""
    from rekindle.wheels.shelf import report as shelf_report
    from rekindle.wheels.shelf import shelf as shelves

    folder = shelf or shelf_folder()
    added = shelves.add(folder, wheels, report=report)
    _answer(shelves.Shelf(folder=folder, wheels=added), as_json)
    for entry in added:
        console.say(shelf_report.install_command(folder, entry))
    return 0


@command.command("list")
@options.shelf
@options.as_json
def list_(shelf: Path | None, as_json: bool) -> int:
    """What is on the shelf."""
    from rekindle.wheels.shelf import shelf as shelves

    folder = shelf or shelf_folder()
    return _answer(shelves.Shelf(folder=folder, wheels=shelves.entries(folder)), as_json)


@command.command("find")
@options.gpus
@options.shelf
@options.as_json
def find(gpus: tuple[str, ...], shelf: Path | None, as_json: bool) -> int:
    """The wheels that serve these cards. Ends with 5 when there is none."""
    from rekindle.core.errors import NoRoute
    from rekindle.wheels.shelf import shelf as shelves

    folder = shelf or shelf_folder()
    found = shelves.find(folder, gpus)
    _answer(shelves.Shelf(folder=folder, wheels=found), as_json, gpus)
    return 0 if found else NoRoute.exit_code


@command.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8037, show_default=True, type=click.IntRange(0, 65535), help="The port to listen on.")
@options.shelf
def serve(host: str, port: int, shelf: Path | None) -> int:
    """Serve the shelf over HTTP, read-only, until Ctrl-C."""
    from rekindle.wheels.shelf import serve as shelf_serve

    with shelf_serve.server(shelf or shelf_folder(), host, port) as server:
        console.out(f"http://{host}:{server.server_address[1]}/simple/")
        server.serve_forever()
    return 0


@command.command("export")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Where to put it.")
@options.gpus
@options.shelf
@options.as_json
def export(output: Path, gpus: tuple[str, ...], shelf: Path | None, as_json: bool) -> int:
    """Copy the shelf, or what serves these cards, into a folder that any web server can carry."""
    from rekindle.wheels.shelf import shelf as shelves

    folder = shelf or shelf_folder()
    chosen = shelves.find(folder, gpus)
    shelves.export(folder, output, chosen)
    return _answer(shelves.Shelf(folder=output, wheels=chosen), as_json)


@command.command("prune")
@click.option("--keep", default=1, show_default=True, help="How many versions of each kind to keep.")
@options.dry_run
@options.shelf
@options.as_json
def prune(keep: int, dry_run: bool, shelf: Path | None, as_json: bool) -> int:
    """Remove older versions: of each project, Python, platform and CUDA the newest stay."""
    from rekindle.wheels.shelf import shelf as shelves

    folder = shelf or shelf_folder()
    gone = shelves.prune(folder, keep=keep, dry_run=dry_run)
    left = tuple(entry for entry in shelves.entries(folder) if entry.file not in gone)
    done = shelves.Shelf(folder=folder, wheels=left, removed=gone)
    if as_json:
        return _answer(done, as_json)
    would = "would be removed" if dry_run else "removed"
    console.out("\n".join(f"{would}: {console.clean(file)}" for file in gone) or "nothing to remove")
    return 0


def _answer(done: object, as_json: bool, gpus: tuple[str, ...] = ()) -> int:
    from rekindle.wheels.shelf import report as shelf_report
    from rekindle.wheels.shelf.shelf import Shelf

    assert isinstance(done, Shelf)
    if as_json:
        console.out_json(done)
    else:
        console.out(shelf_report.text(done.wheels, gpus))
        console.say(f"shelf: {done.folder}")
    return 0
