from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console


@click.command("repair")
@click.argument("wheel", metavar="WHEEL", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="DIR", default="repaired", show_default=True,
    help="The folder for the repaired wheel; it keeps its file name.",
)  # fmt: skip
@click.option("--add", multiple=True, metavar="FILE", help="Put a file into torch/lib, or FILE=PATH/IN/WHEEL.")
@click.option("--remove", multiple=True, metavar="NAME", help="Leave a file out, such as a test DLL.")
@click.option(
    "--complete/--no-complete", default=None, help="Bring what is missing [unless --add or --remove is given]."
)
@click.option(
    "--from",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Take missing libraries from this folder first: a toolkit, a redistributable.",
)
@click.option("--exclude", multiple=True, metavar="NAME", help="Never bring this library.")
@click.option("--no-index", is_flag=True, help="Fetch nothing from the package index.")
@options.gpus
@click.option("--pack", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Make a wheel of this folder.")
@options.dry_run
@options.as_json
def command(
    wheel: Path | None,
    output: Path,
    add: tuple[str, ...],
    remove: tuple[str, ...],
    complete: bool | None,
    folders: tuple[Path, ...],
    exclude: tuple[str, ...],
    no_index: bool,
    gpus: tuple[str, ...],
    folder: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Make a wheel load on a machine that has only the driver; add or remove files.

    The original is not touched. Unchanged files keep their compressed bytes, so even a wheel of gigabytes takes
    seconds.
    """
    from rekindle.core import findings
    from rekindle.core.errors import UsageError
    from rekindle.wheels.repair import repair, report

    if (wheel is None) == (folder is None):
        raise UsageError("name a wheel, or a folder with `--pack`", hint="`rekindle repair WHEEL -o DIR`")
    if wheel is None:
        assert folder is not None
        done = repair.pack(folder, output, dry_run=dry_run)
    else:
        wish = repair.Wish(folders=folders, exclude=exclude, cards=gpus, index=not no_index)
        wanted = not (add or remove) if complete is None else complete
        done = repair.repair(wheel, output, add=add, remove=remove, wish=wish if wanted else None, dry_run=dry_run)
    if as_json:
        console.out_json(done)
    else:
        console.out(report.text(done))
    return findings.exit_code(findings.worst(done.findings))
