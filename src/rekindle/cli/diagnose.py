"""`rekindle diagnose`: what went wrong in a log, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rekindle.cli import options
from rekindle.core import console, files
from rekindle.core.command import rekindle
from rekindle.core.errors import BadInput, UsageError
from rekindle.core.patience import patience

if TYPE_CHECKING:
    from rekindle.diagnose.answer import Diagnosis
    from rekindle.diagnose.facts import Facts
    from rekindle.diagnose.source import Diagnoses


@click.command("diagnose")
@click.argument("where", metavar="LOG|DIR|-|MESSAGE", type=click.Path(path_type=str))
@options.gpus
@options.system
@options.python
@options.torch("The PyTorch release that failed; a fix keeps it where that helps.", options.ANY_TORCH)
@options.cuda()
@options.driver
@options.toolset
@options.machine
@click.option("--follow", is_flag=True, help="Keep reading while the log is written; answer when something fails.")
@click.option(
    "--idle",
    type=float,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --follow: stop after this long without a new line.",
)
@click.option("--all", "everything", is_flag=True, help="Also print why, what else may help and what follows from it.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown to paste into an issue.")
@options.as_json
def command(
    where: str,
    follow: bool,
    idle: float,
    everything: bool,
    as_markdown: bool,
    as_json: bool,
    machine: Path | None,
    **told: Any,
) -> int:
    """Find out what went wrong in a build, install or import LOG.

    Reads a file (also .gz), every log in a folder, `-` for standard input, or the message itself in quotes. The
    options say what the log does not: the card, system or release that the fix is for.

    Exits with 0 if the log says that the work succeeded, with 8 if a cause was found, with 9 if no failure was
    recognised.
    """
    from rekindle.diagnose import source

    if follow and where == "-":
        message = "`--follow` reads a file, not standard input"
        raise UsageError(message, hint="leave `--follow` out: a pipe is read to its end anyway")
    if as_json and as_markdown:
        message = "`--json` and `--markdown` exclude each other"
        raise UsageError(message, hint="choose one of them")
    _refuse_binary(where)
    known = _known(machine, told)
    answer = _follow(where, known, idle) if follow else source.diagnose(where, known=known, watch=patience)
    _print(answer, as_json, as_markdown, everything)
    return source.exit_code(answer)


def _refuse_binary(where: str) -> None:
    from rekindle.diagnose.source import is_typed

    path = Path(where)
    if where == "-" or is_typed(where) or not path.is_file():
        return
    with path.open("rb") as stream:
        kind = files.binary_kind(stream.read(256))
    if kind and not kind.endswith("gzip archive"):
        packed = kind.endswith(("archive", "package")) and "zip archive" not in kind
        inside = "unpack it, and name the log" if packed else f"`{rekindle('inspect', where)}` shows what it holds"
        raise BadInput(f"`{path}` is {kind}, not a log", hint=inside)


def _known(machine: Path | None, told: dict[str, Any]) -> Facts:
    from rekindle.diagnose import facts

    known = facts.facts_from_options(**told)
    if machine is None:
        return known
    from rekindle.machine import snapshot

    return facts.of_machine(snapshot.load(machine), known)


def _print(answer: Diagnosis | Diagnoses, as_json: bool, as_markdown: bool, everything: bool) -> None:
    from rekindle.diagnose import report, source

    without_names = source.shown(answer)
    if as_json:
        console.out_json(without_names)
        return
    each = without_names.logs if isinstance(without_names, source.Diagnoses) else (without_names,)
    if as_markdown:
        console.out("\n\n---\n\n".join(report.markdown(diagnosis) for diagnosis in each))
    else:
        console.out("\n\n\n".join(report.text(diagnosis, everything=everything) for diagnosis in each))


def _follow(where: str, known: Facts, idle: float) -> Diagnosis:
    """Report on stderr while the log grows; the last answer is the answer."""
    from rekindle.diagnose.source import follow

    last: Diagnosis | None = None
    for last in follow(Path(where), known=known, idle=idle):
        if last.causes:
            console.say(f"line {last.causes[0].line}: {last.causes[0].title}")
    assert last is not None, "follow ends with an answer"
    return last
