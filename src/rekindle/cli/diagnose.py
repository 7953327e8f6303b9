"""`rekindle diagnose`: what went wrong in a log, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.errors import UsageError

if TYPE_CHECKING:
    from rekindle.diagnose.facts import Facts


@click.command("diagnose")
@click.argument("where", metavar="LOG|DIR|-")
@options.gpus
@options.system
@options.torch
@options.cuda
@options.toolset
@options.machine
@click.option("--follow", is_flag=True, help="Read on while the log is being written; answer when something fails.")
@click.option("--quiet", default=60.0, metavar="SECONDS", help="With --follow: stop after this long without a line.")
@options.as_json
def command(
    where: str,
    gpus: tuple[str, ...],
    system: str | None,
    torch: str | None,
    cuda: str | None,
    toolset: str | None,
    machine: Path | None,
    follow: bool,
    quiet: float,
    as_json: bool,
) -> None:
    """What went wrong in a build, install or import LOG, and what to do.

    Reads a file, every log of a folder, or `-` for what is piped in. The options tell what the log does not: for
    which card, system or release the fix is wanted.
    """
    from rekindle.diagnose import facts, report, source

    if follow and where == "-":
        message = "`--follow` reads a file, not what is piped in"
        raise UsageError(message, hint="a pipe is read to its end anyway: leave `--follow` out")
    known = facts.told(gpus=gpus, system=system, torch=torch, cuda=cuda, toolset=toolset)
    if machine is not None:
        from rekindle.machine import snapshot

        known = facts.of_machine(snapshot.load(machine), known)
    if follow:
        _follow(where, known, quiet, as_json)
        return
    answer = source.diagnose(where, known=known)
    if as_json:
        console.out_json(answer)
        return
    each = answer.logs if isinstance(answer, source.Diagnoses) else (answer,)
    console.out("\n\n\n".join(report.text(diagnosis) for diagnosis in each))


def _follow(where: str, known: Facts, quiet: float, as_json: bool) -> None:
    """Talk while it goes on; the last answer is the answer."""
    from rekindle.diagnose import report
    from rekindle.diagnose.follow import follow

    last = None
    for last in follow(Path(where), known=known, quiet=quiet):
        if last.causes:
            console.say(f"line {last.causes[0].line}: {last.causes[0].title}")
    if last is not None and as_json:
        console.out_json(last)
    elif last is not None:
        console.out(report.text(last))
