"""`rekindle diagnose`: what went wrong in a log, and what to do."""

from __future__ import annotations

import click

from rekindle import console
from rekindle.cli import options


@click.command("diagnose")
@click.argument("where", metavar="LOG|DIR|-")
@options.gpus
@options.system
@options.torch
@options.cuda
@options.toolset
@options.as_json
def command(
    where: str,
    gpus: tuple[str, ...],
    system: str | None,
    torch: str | None,
    cuda: str | None,
    toolset: str | None,
    as_json: bool,
) -> None:
    """What went wrong in a build, install or import LOG, and what to do.

    Reads a file, every log of a folder, or `-` for what is piped in. The options tell what the log does not: for
    which card, system or release the fix is wanted.
    """
    from rekindle.diagnose import facts, report, source

    known = facts.told(gpus=gpus, system=system, torch=torch, cuda=cuda, toolset=toolset)
    answer = source.diagnose(where, known=known)
    if as_json:
        console.out_json(answer)
        return
    each = answer.logs if isinstance(answer, source.Diagnoses) else (answer,)
    console.out("\n\n\n".join(report.text(diagnosis) for diagnosis in each))
