"""`rekindle mcp`: the answering verbs for assistants, over the Model Context Protocol on standard input and output."""

from __future__ import annotations

from pathlib import Path

import click

from rekindle.core import own


@click.command("mcp")
@click.option(
    "--folder",
    "folders",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="Read files below DIR, in place of your home and the current folder. May be repeated.",
)
def command(folders: tuple[Path, ...]) -> None:
    """Serve doctor, gpu, plan, inspect, diagnose and review to an assistant, read-only, over stdin and stdout."""
    own.need("mcp", "mcp")
    from rekindle.web.assistant import server

    server(folders).run()
