"""`rekindle shell`: a prompt with exactly the environment of a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rekindle.cli import options
from rekindle.core import console


@click.command("shell")
@options.build_question
@options.output("Write a `.cmd`, `.ps1` or `.sh` that opens the same prompt; a `.cmd` opens on a double click.")
def command(output: Path | None, **given: Any) -> int:
    """Open a shell with the environment of PLAN's build. Nothing outside it changes; `exit` leaves it."""
    from rekindle.build import env_command as env

    wanted = env.EnvCommand(**given)
    if output is not None:
        env.write_launcher(wanted, output)
        console.out(f"wrote `{output}`")
        return 0
    return env.open_shell(wanted, tell=console.say)
