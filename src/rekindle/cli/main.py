"""`rekindle`: finds the verb, imports only its module, and turns every known error into a message and an exit code."""

from __future__ import annotations

import contextlib
import errno
import importlib
import itertools
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from rekindle import __version__
from rekindle.cli.options import once, talking
from rekindle.core import console, files
from rekindle.core.command import Command, tell_pip, tell_shell
from rekindle.core.errors import BadInput, Interrupted, NotFound, RekindleError, UsageError, did_you_mean

# verb -> (module, what it does). The module holds a click command named `command`.
VERBS: dict[str, tuple[str, str]] = {
    "doctor": ("rekindle.cli.doctor", "Check this computer: what it has, what is wrong, what will work"),
    "gpu": ("rekindle.cli.gpu", "Look up a GPU: capability, drivers, toolkits, PyTorch wheels that support it"),
    "plan": ("rekindle.cli.plan", "Choose a PyTorch for your GPU, and explain why not the others"),
    "install": ("rekindle.cli.install", "Install the recommended PyTorch and pin it"),
    "env": ("rekindle.cli.env", "Show the environment and the options of a build, and why"),
    "shell": ("rekindle.cli.shell", "Open a shell with the environment of a build"),
    "source": ("rekindle.cli.source", "Fetch PyTorch's source at a release, with all its submodules"),
    "patch": ("rekindle.cli.patch", "Patch PyTorch's source so that it builds with today's tools; undo it"),
    "build": ("rekindle.cli.build", "Build a wheel from a plan; rerun it to resume"),
    "review": ("rekindle.cli.review", "Find what is wrong in a hand-written build script"),
    "diagnose": ("rekindle.cli.diagnose", "Find out what went wrong in a log, and how to fix it"),
    "inspect": (
        "rekindle.cli.inspect",
        "Show which GPUs a wheel, library or package supports, and what it needs to load",
    ),
    "repair": ("rekindle.cli.repair", "Make a wheel load on a machine that has only the driver"),
    "verify": ("rekindle.cli.verify", "Check a wheel or an installed torch, up to a training step on each GPU"),
    "shelf": ("rekindle.cli.shelf", "Keep verified wheels in a folder that pip can install from"),
    "audit": ("rekindle.cli.audit", "Find compiled modules of an environment that will fail on your GPUs, and why"),
    "knowledge": ("rekindle.cli.knowledge", "Show what Rekindle's data holds and how old it is; update it"),
    "site": ("rekindle.cli.site", 'Write "Which PyTorch runs on my GPU?" as static files'),
    "serve": ("rekindle.cli.serve", "Show this computer and the picker in a browser, read-only"),
    "mcp": ("rekindle.cli.mcp", "Answer an assistant's questions (Model Context Protocol)"),
    "report": ("rekindle.cli.report", "Show what a build did as a page: timeline, slowest files, memory"),
    "fleet": ("rekindle.cli.fleet", "Build a matrix of wheels on many machines"),
    "toolchain": (
        "rekindle.cli.toolchain",
        "Keep CUDA toolkits and compilers in a folder of your own, without installers",
    ),
    "factory": ("rekindle.cli.factory", "Set up a repository that builds and publishes wheels"),
    "extension": ("rekindle.cli.extension", "Find or build CUDA extensions for your torch and your GPUs"),
}

# What people need most days, and the rest of each kind.
GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Ask": (("doctor", "gpu", "plan", "diagnose", "review"), ("knowledge", "serve", "site", "mcp")),
    "Install": (("install", "audit"), ()),
    "Build": (("build", "extension"), ("toolchain", "source", "patch", "env", "shell", "report")),
    "Wheels": (("inspect", "verify"), ("repair",)),
    "Share": (("shelf",), ("fleet", "factory")),
}
_EVERYTHING = "rekindle.everything"
_NOT_OURS = frozenset({*files.FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})
_NO_FOLDER = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST})  # a file where a folder was to be, or the reverse


# Verbs whose answer leans on which releases there are.
_LEANING = {"plan", "gpu", "doctor", "install"}


class Verbs(click.Group):
    """A group that imports a verb only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(VERBS[cmd_name][0]).command
        return once(talking(command))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`rekindle --json` is `rekindle doctor --json`, as `rekindle` alone is `rekindle doctor`."""
        name = args[0].partition("=")[0] if args else ""
        if name.startswith("-") and not any(name in each.opts for each in self.get_params(ctx)):
            args = ["doctor", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:1] == ["help"]:
            return "help", _help, args[1:]
        if args and args[0] not in VERBS:
            message = f"unknown command `{console.clean(args[0])[:60]}`"
            raise UsageError(message, hint=f"{did_you_mean(args[0], VERBS)}see `rekindle --help`")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything = bool(ctx.meta.get(_EVERYTHING))
        for name, (everyday, others) in GROUPS.items():
            with formatter.section(name):
                shown = (*everyday, *others) if everything else everyday
                formatter.write_dl([(verb, VERBS[verb][1]) for verb in shown])
        if not everything:
            formatter.write_paragraph()
            formatter.write_text(f"{sum(len(others) for _, others in GROUPS.values())} more: rekindle help --all")


class Help(click.HelpFormatter):
    """In a narrow window the names of the options leave room for what they do."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(rows, self.width // 3 if self.width < 60 else col_max, col_spacing)


click.Context.formatter_class = Help


@click.command("help")
@click.option("--all", "everything", is_flag=True, help="Every command, not only the everyday ones.")
@click.argument("verb", required=False)
@click.pass_context
def _help(ctx: click.Context, everything: bool, verb: str | None) -> None:
    """Show what Rekindle can do, or the help of one command."""
    parent = ctx.parent
    assert parent is not None
    if verb is None:
        parent.meta[_EVERYTHING] = everything
        console.out(parent.get_help())
        return
    name, command, _ = cli.resolve_command(parent, [verb])
    assert command is not None
    console.out(command.get_help(click.Context(command, info_name=name, parent=parent)))


@click.command(cls=Verbs, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="rekindle", message="%(prog)s %(version)s")
@click.option(
    "--knowledge",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Override built-in data with files from DIR.",
)
@click.pass_context
def cli(ctx: click.Context, knowledge: Path | None) -> None:
    """PyTorch for the GPUs the official wheels left behind, and for the ones they have not reached yet."""
    if knowledge is not None:
        from rekindle.knowledge.tables import use_overlay

        use_overlay(knowledge)
    if ctx.invoked_subcommand is None:
        doctor = cli.get_command(ctx, "doctor")
        assert doctor is not None
        ctx.exit(ctx.invoke(doctor) or 0)


talking(cli)


def main(argv: list[str] | None = None) -> None:
    """The entry point. Ends the process; never shows a traceback for a user's mistake."""
    import signal

    # What a service, a CI runner, `timeout` or a closed terminal sends in place of Ctrl-C would end Python without a
    # word, and leave pip at work in an environment that nobody puts back. What nohup holds back stays so.
    for name in ("SIGTERM", "SIGHUP", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: list[str]) -> int:
    console.begin()
    console.pasted_here(_pasted_here)
    tell_shell(None)
    tell_pip()
    try:
        ended = _carry_out(argv)
        _say_swept()
        return _end(argv, ended)
    except RekindleError as error:
        # Not even the answer or the error could be written.
        with contextlib.suppress(Exception):
            console.say(f"error: {error.message}")
        return error.exit_code


def _pasted_here(text: str) -> str:
    """Every `rekindle VERB` as this Rekindle is started here: `.venv\\Scripts\\rekindle VERB`, `uvx --from …`."""
    from rekindle.core import own

    words = own.program()
    if words == ("rekindle",):
        return text
    spelled = Command(*words)
    return re.sub(rf"(?<![\w./\\+-])rekindle(?= (?:{'|'.join(VERBS)})\b)", lambda _: spelled, text)


def _carry_out(argv: list[str]) -> int | RekindleError:
    try:
        # By itself click writes no line of help shorter than fifty columns.
        narrow: dict[str, Any] = {"terminal_width": console.width()} if console.width() < 50 else {}
        result: Any = cli.main(args=argv, prog_name="rekindle", standalone_mode=False, obj=tuple(argv), **narrow)
    except RekindleError as error:
        return error
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.Abort, KeyboardInterrupt):
        return Interrupted("interrupted", hint="run the command again: what was finished is kept")
    except click.ClickException as wrong:
        verb = next((word for word in argv if word in VERBS), "")
        card = _meant(verb, argv) if "extra argument" in str(wrong) else ""
        place = getattr(wrong, "ctx", None)
        path = place.command_path if place else f"rekindle {verb}".rstrip()
        message = wrong.format_message()
        if isinstance(wrong, click.NoSuchOption) and place:
            # Click takes the dashes for letters, and finds every short option near every other.
            message = wrong.message
            card = did_you_mean(wrong.option_name, (name for each in place.command.params for name in each.opts))
            if any(wrong.option_name in each.opts for each in cli.params):
                card = f"`{wrong.option_name}` goes before the verb: `rekindle {wrong.option_name} … {verb}`; "
        if place and (typed := re.match(r"No such command '([^']*)'", message)):
            message = f"unknown command `{console.clean(typed[1])[:60]}`"
            card = did_you_mean(typed[1], getattr(place.command, "commands", ()))
        if place and message.startswith("Usage:"):  # nothing was typed behind a group: click's message is its help
            message = f"`{path}` needs one of its commands: {', '.join(getattr(place.command, 'commands', ()))}"
        choice = getattr(getattr(wrong, "param", None), "type", None)
        if isinstance(choice, click.Choice) and (typed := re.search(r"'([^']*)' is not one of", message)):
            card = did_you_mean(typed[1], map(str, choice.choices))
        return UsageError(message, hint=f"{card}see `{path} --help`")
    except MemoryError:
        return RekindleError("not enough memory", hint="close other programs and rerun the command")
    except RecursionError:
        return BadInput("what was to be read is nested too deeply", hint="no real file or folder is: do not use it")
    except OSError as error:
        return _of_system(error)
    except Exception as bug:
        return _bug(bug)
    _say_if_stale(argv)
    return result if isinstance(result, int) else 0


def _meant(verb: str, argv: list[str]) -> str:
    """What words too many were probably meant as: most often a name of several words without its quotes."""
    own = argv[argv.index(verb) + 1 :] if verb else []
    if verb == "gpu":
        return _in_quotes(Command("rekindle", "gpu", _name(own)))
    for place, word in enumerate(own):
        name = _name(own[place + 1 :]) if word == "--gpu" else ""
        if " " in name:
            return _in_quotes(Command("--gpu", name))
    if verb == "extension" and own[:1] == ["check"]:
        return "`check` looks at an environment: `--env DIR`; a project is built with `rekindle extension build DIR`; "
    return "a card is named with `--gpu NAME`; " if verb in ("plan", "install") else ""


def _name(words: list[str]) -> str:
    """The words before the next option, as one."""
    return " ".join(" ".join(itertools.takewhile(lambda word: not word.startswith("-"), words)).split())


def _in_quotes(command: Command) -> str:
    return f"write the name in quotes: `{command}`; "


def _say_if_stale(argv: list[str]) -> None:
    """An answer that leans on old data says so in a line."""
    if not _LEANING.intersection(argv):
        return
    from datetime import date

    from rekindle.knowledge.inventory import stale

    line = stale(date.today())
    if line:
        console.say(f"{line}: see `rekindle knowledge`")


def _say_swept() -> None:
    count, size = files.swept()
    if count:
        console.say(f"removed {console.plural(count, 'file')} ({console.size(size)}) that a killed run had left")


def _end(argv: list[str], ended: int | RekindleError) -> int:
    if isinstance(ended, int):
        return ended
    own = argv[: argv.index("--")] if "--" in argv else argv
    console.error(ended.message, ended.hint, code=ended.exit_code if "--json" in own else None)
    return ended.exit_code


def _of_system(error: OSError) -> RekindleError:
    """What no verb foresaw and the system refused: a full or read-only disk, a place that is not ours, or is a file."""
    if error.errno == errno.ENAMETOOLONG:
        return NotFound(f"no file can be called `{str(error.filename)[:80]}…`", hint="give the path of a file")
    if error.errno in (None, errno.EACCES, errno.EPERM) and error.filename:
        named = str(error.filename)
        if error.errno is None or (Path(named).exists() and not os.access(named, os.R_OK)):
            return NotFound(f"cannot read `{named}`: {error.strerror}", hint="check the file, and its permissions")
    if error.errno in _NOT_OURS or (error.errno in _NO_FOLDER and error.filename):
        return files.not_writable(error.filename or "a file", error)
    return _bug(error)


def _bug(error: Exception) -> RekindleError:
    """A fault of ours: said as such, with a trace on request, so that the report is worth something."""
    if os.environ.get("REKINDLE_TRACE"):
        raise error
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    place = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame else "?"
    return RekindleError(
        f"internal error; please report it: {type(error).__name__}: {str(error)[:300]} ({place})",
        hint="set REKINDLE_TRACE=1 and rerun the command to see the trace for the report",
    )
