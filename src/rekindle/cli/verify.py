from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console


@click.command("verify")
@click.argument("subject", metavar="[WHEEL|ENV]", type=click.Path(path_type=Path), required=False)
@options.gpus
@click.option("--torch", metavar="X.Y.Z", help="The PyTorch release it should be.")
@click.option("--cuda", metavar="X.Y", help="The CUDA it should be built with.")
@click.option("--plan", type=click.Path(path_type=Path), metavar="FILE", help="Hold it against this plan.")
@click.option("--python", metavar="PATH", help="The interpreter for a wheel's throw-away environment.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="WHEEL|ENV",
    help="The torch that an extension is meant for [a torch wheel beside it].",
)
@click.option("--no-run", is_flag=True, help="Only read; install and import nothing.")
@options.output("Where to write the report [a wheel's goes beside it].")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write the checks as JUnit XML, too.")
@options.as_json
def command(
    subject: Path | None,
    gpus: tuple[str, ...],
    torch: str | None,
    cuda: str | None,
    plan: Path | None,
    python: str | None,
    against: Path | None,
    no_run: bool,
    output: Path | None,
    junit: Path | None,
    as_json: bool,
) -> int:
    """Check a wheel, or an installed torch, from its file to a step of training on each card.

    Ends with 8 when a check failed, with 9 when nothing failed but something could not be checked.
    """
    from rekindle.core import codec, files, findings
    from rekindle.wheels.verify import report, verify

    expected = verify.Expected(torch=torch, cuda=cuda, cards=gpus) if plan is None else verify.expected_of(plan)
    done = verify.verify(subject, expected=expected, python=python, run=not no_run, against=against)
    place = output or (verify.report_beside(subject) if subject is not None and done.kind == "wheel" else None)
    if place is not None:
        files.write_text(place, codec.to_json(done) + "\n")
        console.say(f"wrote {place}")
    if junit is not None:
        files.write_text(junit, report.junit(done))
    if as_json:
        console.out_json(done)
    else:
        console.out(report.text(done))
    return findings.exit_code(done.state)
