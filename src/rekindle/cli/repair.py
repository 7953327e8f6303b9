from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console

_OTHERS = ("add", "remove", "complete", "folders", "exclude", "no_index", "folder")


@click.command("repair")
@click.argument("wheels", metavar="WHEEL|DIR...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=options.OutputPath(), metavar="DIR", default="repaired", show_default=True,
    help="The folder for the repaired wheels; they keep their file names, but for a variant's label.",
)  # fmt: skip
@click.option("--add", multiple=True, metavar="FILE", help="Put a file into torch/lib, or FILE=PATH/IN/WHEEL.")
@click.option("--remove", multiple=True, metavar="NAME", help="Leave a file out, such as a test DLL.")
@click.option(
    "--complete/--no-complete", default=None, help="Bring what is missing [unless --add or --remove is given]."
)
@options.path(
    "--from",
    "DIR",
    "Take missing libraries from this folder first: a toolkit, a redistributable.",
    name="folders",
    multiple=True,
)
@click.option("--slim", is_flag=True, help="Require NVIDIA's packages instead of carrying their libraries (Linux).")
@click.option("--only-for", multiple=True, metavar="GPU", help="Leave out the GPU code that this card cannot use.")
@click.option("--variant", is_flag=True, help="Label it for variant-aware installers, by the GPU code that is in it.")
@click.option("--exclude", multiple=True, metavar="NAME", help="Never add this library.")
@click.option("--no-index", is_flag=True, help="Fetch nothing from the package index.")
@options.gpus
@options.path("--pack", "DIR", "Make a wheel from this unpacked folder.", name="folder")
@options.dry_run
@options.as_json
def command(
    wheels: tuple[Path, ...],
    output: Path,
    add: tuple[str, ...],
    remove: tuple[str, ...],
    complete: bool | None,
    folders: tuple[Path, ...],
    slim: bool,
    only_for: tuple[str, ...],
    variant: bool,
    exclude: tuple[str, ...],
    no_index: bool,
    gpus: tuple[str, ...],
    folder: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Make a wheel load on a machine that has only the GPU driver; add or remove files.

    The original is not touched. Unchanged files keep their compressed bytes, so even a wheel of gigabytes takes
    seconds.
    """
    from rekindle.core import findings
    from rekindle.core.errors import UsageError
    from rekindle.wheels import tags
    from rekindle.wheels.repair import repair

    if bool(wheels) == (folder is not None):
        raise UsageError("name a wheel, or a folder with `--pack`", hint="`rekindle repair WHEEL -o DIR`")
    if slim:
        from rekindle.wheels.repair import slim as slimming

        options.exclude("slim", (*_OTHERS, "variant", "only_for"))
        every = [found for given in wheels for found in tags.wheels_in(given)]
        with console.waiting(f"reading and writing {console.plural(len(every), 'wheel')}"):
            done = [slimming.slim(wheel, output, cards=gpus, dry_run=dry_run) for wheel in every]
    elif only_for:
        from rekindle.wheels.repair.slim import prune

        options.exclude("only_for", (*_OTHERS, "variant", "gpus"))
        every = [found for given in wheels for found in tags.wheels_in(given)]
        with console.waiting(f"reading and writing {console.plural(len(every), 'wheel')}"):
            done = [prune(wheel, output, cards=only_for, dry_run=dry_run) for wheel in every]
    elif variant:
        from rekindle.wheels.repair.slim import label

        options.exclude("variant", (*_OTHERS, "gpus"))
        done = [label(each, output, dry_run=dry_run) for given in wheels for each in tags.wheels_in(given)]
    elif folder is not None:
        done = [repair.pack(folder, output, dry_run=dry_run)]
    else:
        wish = repair.RepairWish(folders=folders, exclude=exclude, cards=gpus, index=not no_index)
        wanted = not (add or remove) if complete is None else complete
        every = [found for given in wheels for found in tags.wheels_in(given)]
        with console.waiting(f"reading and writing {console.plural(len(every), 'wheel')}"):
            done = [
                repair.repair(wheel, output, add=add, remove=remove, wish=wish if wanted else None, dry_run=dry_run)
                for wheel in every
            ]
    if as_json:
        console.out_json(done[0] if len(done) == 1 else repair.Repairs(repairs=tuple(done)))
    else:
        console.out("\n\n".join(repair.text(each) for each in done))
    return findings.exit_code(findings.worst([item for each in done for item in each.findings]))
