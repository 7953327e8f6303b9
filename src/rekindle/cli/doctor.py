"""`rekindle doctor`: what this computer has, what is wrong, what will work, what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.errors import UsageError
from rekindle.core.findings import exit_code

if TYPE_CHECKING:
    from rekindle.machine.model import Machine


@click.command("doctor")
@options.machine
@options.path("--save", "FILE", "Write a snapshot of this machine, redacted.", written=True)
@click.option("--paste", is_flag=True, help="Print the Markdown block for an issue, redacted.")
@options.path("--compare", "A B", "Show what differs between two snapshots.", nargs=2)
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
    """Check this computer: what it has, what is wrong, what will work, and which command to run next."""
    if save and machine:
        message = "`--save` records this machine and `--machine` answers for another"
        raise UsageError(message, hint="use one of them")
    if compare:
        return _compare(compare, as_json)
    found = _machine(machine, save)
    if explain:
        return _explain(explain, found, as_json)
    from rekindle.doctor import report, text

    if machine is None and not only:
        options.python_of_this_folder()
    whole = report.report(found, only=only, recorded=machine)
    if as_json:
        console.out_json(whole)
    elif paste:
        console.out(text.paste(whole))
        return 0
    else:
        console.out(text.text(whole, everything=everything or bool(only)))
    return exit_code(whole.state)


def _machine(recorded: Path | None, save: Path | None) -> Machine:
    from rekindle.machine import snapshot

    if recorded:
        return snapshot.load(recorded)
    if save:
        machine = snapshot.save_here(save)
        console.say(f"wrote {save}")
        return machine
    return snapshot.here(meanwhile=_prepare)


def _prepare() -> None:
    """Import and read what will be needed while the probes wait for the programs they started."""
    from rekindle.doctor import report

    report.judges()
    report.prepare()


def _compare(files: tuple[Path, Path], as_json: bool) -> int:
    from rekindle.doctor import report, text
    from rekindle.machine import snapshot

    answer = report.compare(snapshot.load(files[0]), snapshot.load(files[1]))
    console.out_json(answer) if as_json else console.out(text.compared(answer, files[0].name, files[1].name))
    return 0


def _explain(check: str, machine: Machine, as_json: bool) -> int:
    from rekindle.doctor import report

    answer = report.explain(check, machine)
    console.out_json(answer) if as_json else console.out(report.explanation(answer))
    return 0
