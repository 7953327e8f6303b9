"""`rekindle review`: what is wrong with a hand-made build script."""

from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.errors import UsageError
from rekindle.core.patience import patience


@click.command("review")
@click.argument("scripts", metavar="SCRIPT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.gpus
@options.torch("The PyTorch release that it is for, e.g. 2.7.1.")
@options.system
@options.driver
@options.python
@options.machine
@click.option("--fix", is_flag=True, help="Show the corrections that are certain; with -o, write the corrected script.")
@options.output("Where --fix writes the corrected script.")
@click.option(
    "--with-linters", "linters", is_flag=True, help="Add what shellcheck, hadolint or actionlint finds, if installed."
)
@click.option("--sarif", is_flag=True, help="Print SARIF, which code hosts show beside the lines.")
@options.as_json
def command(
    scripts: tuple[Path, ...],
    gpus: tuple[str, ...],
    torch: str | None,
    system: str | None,
    driver: str | None,
    python: str | None,
    machine: Path | None,
    fix: bool,
    output: Path | None,
    linters: bool,
    sarif: bool,
    as_json: bool,
) -> int:
    """Find what is wrong with a build SCRIPT, or a list of packages, before it runs for hours.

    Reads .bat, .cmd, .ps1, .sh, Dockerfiles, Apptainer's .def, docker-compose, Makefiles, pipelines and other YAML
    with commands, requirements.txt, environment.yml, pyproject.toml, pixi.toml, Pipfile, tox.ini, setup.cfg, conda
    recipes, .py, .ipynb, and the code blocks of .md and .txt notes. Nothing in it is run. Several
    scripts give a table that compares them. With a card it exits with 0 only if it was asked whether the script serves
    it, and it does; with 8 if something cannot work, and with 9 if a question could not be answered.
    """
    from rekindle.core.errors import ChecksFailed, Unverified
    from rekindle.review import report, review
    from rekindle.review.question import question_from_options

    if fix and len(scripts) != 1:
        message = "`--fix` corrects one script at a time"
        raise UsageError(message, hint="for example `rekindle review build.bat --fix -o build_fixed.bat`")
    if output is not None and not fix:
        message = "`-o` only goes with `--fix`"
        raise UsageError(message, hint="redirect the report into a file, or add `--fix`")
    asked = question_from_options(gpus, torch=torch, system=system, driver=driver, python=python, machine=machine)
    with patience(scripts):
        answer = review.review(scripts, asked)
    if linters:
        from rekindle.review.linters import with_linters

        answer, unasked = with_linters(answer, scripts)
        for each in unasked:
            console.say(each)
    if sarif:
        console.out_json(report.sarif(answer))
    elif as_json:
        console.out_json(answer)
    else:
        console.out(report.text(answer))
    if fix:
        from rekindle.review import correct

        result = correct.corrected(scripts[0], asked)
        console.say(result.difference or "nothing to correct that is certain")
        if result.refused:
            lines = ", ".join(map(str, result.refused))
            console.say(f"not corrected, because it would bring another fault: line {lines}")
            for line, fault in result.refused.items():
                console.say(console.wrap(f"line {line} would bring {fault}", indent="    ", first="  "))
        if result.difference and output is not None:
            correct.write(result, output)
            console.say(f"wrote {output}")
        elif output is not None:
            console.say("nothing was written")
        elif result.difference:
            console.say("nothing was written; add `-o FILE` to write the corrected script")
    if any(one.refused for one in answer.scripts):
        return ChecksFailed.exit_code
    return 0 if all(one.answered for one in answer.scripts) else Unverified.exit_code
