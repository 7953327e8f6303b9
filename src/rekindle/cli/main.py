"""`rekindle`: finds the verb, imports only its module, and turns every known error into a message and an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from rekindle import __version__
from rekindle.cli.options import once
from rekindle.core import console
from rekindle.core.errors import Interrupted, RekindleError, UsageError

# verb -> (module, what it does). The module holds a click command named `command`.
VERBS: dict[str, tuple[str, str]] = {
    "doctor": ("rekindle.cli.doctor", "What this computer has, what is wrong, what will work"),
    "gpu": ("rekindle.cli.gpu", "What is true of a card: capability, drivers, toolkits, wheels that serve it"),
    "plan": ("rekindle.cli.plan", "Which PyTorch, by which route, and why not the others"),
    "install": ("rekindle.cli.install", "Carry the recommended route out into an environment, and keep it there"),
    "env": ("rekindle.cli.env", "The environment and the options of a build, and why"),
    "source": ("rekindle.cli.source", "PyTorch's source at a release, every submodule at its pinned commit"),
    "patch": ("rekindle.cli.patch", "Patch PyTorch's source so that it builds with today's tools; undo it"),
    "build": ("rekindle.cli.build", "Take a plan to a wheel: resumable, checked, journalled"),
    "review": ("rekindle.cli.review", "What is wrong with a hand-made build script"),
    "diagnose": ("rekindle.cli.diagnose", "What went wrong in a log, and what to do about it"),
    "inspect": ("rekindle.cli.inspect", "Which GPUs a wheel, library or package serves, and what it needs to load"),
    "repair": ("rekindle.cli.repair", "Make a wheel load on a machine that has only the driver"),
    "verify": ("rekindle.cli.verify", "Check a wheel or an installed torch, down to a step of training on each card"),
    "shelf": ("rekindle.cli.shelf", "A folder of verified wheels that pip can install from"),
    "audit": ("rekindle.cli.audit", "Which compiled modules of an environment will fail on the cards here, and why"),
    "site": ("rekindle.cli.site", 'Write "Which PyTorch runs on my GPU?" as static files'),
    "report": ("rekindle.cli.report", "Draw what a build did as a page: timeline, slowest files, memory"),
    "extension": ("rekindle.cli.extension", "Build CUDA extensions for the torch and the cards that are here"),
}


class Verbs(click.Group):
    """A group that imports a verb only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(VERBS[cmd_name][0]).command
        return once(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS:
            message = f"there is no verb `{console.clean(args[0])[:60]}`"
            raise UsageError(message, hint=f"{_nearest(args[0])}`rekindle --help` lists the verbs")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, summary) for verb, (_, summary) in VERBS.items()])


@click.command(cls=Verbs, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="rekindle", message="%(prog)s %(version)s")
@click.option(
    "--knowledge",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Lay the tables of this folder over the shipped ones.",
)
@click.pass_context
def cli(ctx: click.Context, knowledge: Path | None) -> None:
    """PyTorch for the GPUs the official wheels left behind, and for the ones they have not reached yet."""
    if knowledge is not None:
        from rekindle.knowledge.tables import use_overlay

        use_overlay(knowledge)
    if ctx.invoked_subcommand is None:
        ctx.exit(ctx.invoke(Verbs.get_command(cli, ctx, "doctor")) or 0)  # type: ignore[arg-type]


def main(argv: list[str] | None = None) -> None:
    """The entry point. Ends the process; never shows a traceback for a user's mistake."""
    if sys.platform == "win32":
        # Ctrl-Break, and what a service or CI runner sends instead of Ctrl-C, would end Python without a word.
        signal.signal(signal.SIGBREAK, signal.default_int_handler)
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: list[str]) -> int:
    try:
        result: Any = cli.main(args=argv, prog_name="rekindle", standalone_mode=False, obj=tuple(argv))
    except RekindleError as error:
        console.error(error.message, error.hint)
        return error.exit_code
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.Abort, KeyboardInterrupt):
        console.error("interrupted", "run the same command again to go on")
        return Interrupted.exit_code
    except click.ClickException as wrong:
        verb = next((word for word in argv if word in VERBS), "")
        console.error(
            console.clean(wrong.format_message()), f"`rekindle {verb + ' ' if verb else ''}--help` shows what it takes"
        )
        return UsageError.exit_code
    except MemoryError:
        console.error("not enough memory", "close other programs and run the same command again")
        return 1
    except Exception as bug:
        return _bug(bug)
    return result if isinstance(result, int) else 0


def _bug(error: Exception) -> int:
    """A fault of ours: said as such, with a trace on request, so that the report is worth something."""
    if os.environ.get("REKINDLE_TRACE"):
        raise error
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    place = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame else "?"
    console.error(
        f"this is a fault in Rekindle: {type(error).__name__}: {console.clean(str(error))[:300]} ({place})",
        "set REKINDLE_TRACE=1 and run it again to see the trace, and send that in a bug report",
    )
    return 1


def _nearest(word: str) -> str:
    import difflib

    near = difflib.get_close_matches(word, VERBS, n=1)
    return f"did you mean `{near[0]}`? " if near else ""
