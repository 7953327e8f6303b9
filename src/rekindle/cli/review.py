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
@options.torch("The PyTorch release that it is for, e.g. 2.7.1.")
@options.system
@click.option("--fix", is_flag=True, help="Show the corrections that are certain; with -o, write the corrected script.")
@options.output("Where --fix writes the corrected script.")
@click.option("--sarif", is_flag=True, help="Print SARIF, which code hosts show beside the lines.")
@options.as_json
def command(
    scripts: tuple[Path, ...],
    gpus: tuple[str, ...],
    torch: str | None,
    system: str | None,
    fix: bool,
    output: Path | None,
    sarif: bool,
    as_json: bool,
) -> int:
    """Find what is wrong with a build SCRIPT before it runs for hours.

    Reads .bat, .cmd, .ps1, .sh, Dockerfiles, GitHub and GitLab workflows, and the code blocks of .md and .txt notes.
    Nothing is run. Several scripts give a table that compares them. Exits with 8 if a script cannot work,
    and with 9 if nothing in it could be checked.
    """
    from rekindle.core.errors import ChecksFailed, Unverified
    from rekindle.knowledge.gpu.gpus import capabilities_of
    from rekindle.review import report, review

    if fix and len(scripts) != 1:
        message = "`--fix` corrects one script at a time"
        raise UsageError(message, hint="for example `rekindle review build.bat --fix -o build_fixed.bat`")
    if output is not None and not fix:
        message = "`-o` only goes with `--fix`"
        raise UsageError(message, hint="redirect the report into a file, or add `--fix`")
    cards = capabilities_of(gpus)
    release, place = review.told(torch, system)
    answer = review.review(scripts, gpus=cards, torch=release, system=place)
    if sarif:
        console.out_json(report.sarif(answer))
    elif as_json:
        console.out_json(answer)
    else:
        console.out(report.text(answer))
    if fix:
        from rekindle.review import correct

        result = correct.corrected(scripts[0], gpus=cards, torch=release, system=place)
        console.say(result.difference or "nothing to correct that is certain")
        if output is not None:
            correct.write(result, output)
            console.say(f"wrote {output}")
        elif result.difference:
            console.say("nothing was written; add `-o FILE` to write the corrected script")
    if any(one.refused for one in answer.scripts):
        return ChecksFailed.exit_code
    return 0 if all(one.checked for one in answer.scripts) else Unverified.exit_code
