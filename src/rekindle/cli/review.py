"""`rekindle review`: what is wrong with a hand-made build script."""

from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.errors import UsageError


@click.command("review")
@click.argument("scripts", metavar="SCRIPT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.gpus
@options.torch
@click.option("--fix", is_flag=True, help="Write the script with every correction that needs no decision.")
@options.output("Where --fix writes the corrected script.")
@options.as_json
def command(
    scripts: tuple[Path, ...], gpus: tuple[str, ...], torch: str | None, fix: bool, output: Path | None, as_json: bool
) -> int:
    """What is wrong with a build SCRIPT (.bat, .cmd, .ps1, .sh, or a document with such blocks).

    Several scripts give a table that compares them. Ends with 8 when one of them cannot work.
    """
    from rekindle.core.errors import ChecksFailed
    from rekindle.diagnose import facts
    from rekindle.review import report, review

    if fix and (output is None or len(scripts) != 1):
        message = "`--fix` corrects one script and needs `-o FILE`"
        raise UsageError(message, hint="for example `rekindle review build.bat --fix -o build_fixed.bat`")
    cards = facts.told(gpus=gpus).gpus
    release = review.release(torch)
    answer = review.review(scripts, gpus=cards, torch=release)
    if fix and output is not None:
        review.write_corrected(scripts[0], output, gpus=cards, torch=release)
        console.say(f"wrote {output}")
    if as_json:
        console.out_json(answer)
    else:
        console.out(report.text(answer))
    return ChecksFailed.exit_code if any(one.refused for one in answer.scripts) else 0
