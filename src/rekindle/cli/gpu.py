from __future__ import annotations

import click


@click.command("gpu")
def command() -> None:
    """What is true of a card."""
