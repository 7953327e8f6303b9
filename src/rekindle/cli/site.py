"""`rekindle site`: the picker and the matrix as static files."""

from __future__ import annotations

import os
from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console


@click.command("site")
@options.output("The folder to write to; `site` if not given.")
@options.gpus
@options.jobs
@options.as_json
def command(output: Path | None, gpus: tuple[str, ...], jobs: int | None, as_json: bool) -> None:
    """Write "Which PyTorch runs on my GPU?" as static files for any web server, or to open from disk.

    With `--gpu`, only the answers for these GPUs and for others of their kind are written; the whole site takes a few
    minutes of processor time.
    """
    from rekindle.stack.situation import cards_named
    from rekindle.web.site import write_site

    only = [card.name for card in cards_named(gpus)]
    made = write_site(output or Path("site"), say=console.say, only=only, jobs=jobs or os.cpu_count() or 1)
    if as_json:
        console.out_json(made)
        return
    console.out(f"{made.cards} cards in {made.classes} kinds, {made.files} files, {made.bytes / 1e6:.1f} MB")
    console.say(f"open `{Path(made.folder) / 'index.html'}` in a browser, or copy the folder to a web server")
