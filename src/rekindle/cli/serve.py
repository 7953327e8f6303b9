"""`rekindle serve`: the site with this computer filled in."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console, own


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8035, show_default=True, type=click.IntRange(0, 65535), help="The port to listen on.")
@options.machine
@options.path("--shelf", "DIR", "The shelf to show, not the usual one.")
def command(host: str, port: int, machine: Path | None, shelf: Path | None) -> int:
    """Show this computer, its doctor, audit and shelf, and the picker, in a browser.

    Only this computer can look, and nothing can be changed from a page. With another `--host` the printed address holds
    a token that a browser must know.
    """
    own.need("serve", "starlette", "uvicorn")
    from rekindle.core.web_server import kept_up
    from rekindle.web.guard import bind
    from rekindle.web.serve import pages_of, serve

    place, opened = bind(host, port)
    console.out(place.address)
    console.say("press Ctrl+C to end")
    kept_up(partial(serve, pages_of(machine, shelf), place, opened), console.say)
    return 0
