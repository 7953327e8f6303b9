"""`rekindle doctor`: what this computer has, what is wrong, what will work, what to do next."""

from __future__ import annotations

from pathlib import Path

import click

from rekindle import console
from rekindle.cli import options
from rekindle.errors import UsageError
from rekindle.findings import exit_code


@click.command("doctor")
@options.machine
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="Write a snapshot of this machine, redacted."
)
@click.option("--paste", is_flag=True, help="Print the Markdown block for an issue, redacted.")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="A B",
    help="Show what differs between two snapshots.",
)
@click.option("--explain", metavar="ID", help="Explain one check and what it found.")
@click.option("--only", multiple=True, metavar="ID", help="Run only this check or group (`cuda`). May be repeated.")
@click.option("--all", "everything", is_flag=True, help="Show the checks that passed, too.")
@options.as_json
def command(
    machine: Path | None,
    save: Path | None,
    paste: bool,
    compare: tuple[Path, Path] | None,
    explain: str | None,
    only: tuple[str, ...],
    everything: bool,
    as_json: bool,
) -> int:
    """What this computer has, what is wrong, what will work, and the one command to run next."""
    from rekindle.doctor import report
    from rekindle.machine import snapshot

    if compare:
        answer = report.compare(snapshot.load(compare[0]), snapshot.load(compare[1]))
        if as_json:
            console.out_json(answer)
        else:
            console.out(report.compared(answer, compare[0].name, compare[1].name))
        return 0
    if save and machine:
        message = "`--save` records this machine and `--machine` answers for another"
        raise UsageError(message, hint="use one of them")
    if save:
        taken = snapshot.take()
        snapshot.save(taken, save)
        console.say(f"wrote {save}")
        found = taken.machine
    else:
        found = None
    if found is None:
        found = snapshot.load(machine) if machine else snapshot.here()
    if explain:
        from rekindle.doctor import explain as explaining

        explained = explaining.explain(explain, found)
        if as_json:
            console.out_json(explained)
        else:
            console.out(explaining.text(explained))
        return 0
    whole = report.report(found, only=only)
    if paste:
        from rekindle.doctor.paste import paste as block

        console.out(block(whole))
        return 0
    if as_json:
        console.out_json(whole)
    else:
        console.out(report.text(whole, everything=everything or bool(only)))
    return exit_code(whole.state)
