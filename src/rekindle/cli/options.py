"""Options that several verbs take, spelled once."""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from rekindle.core import console, own, paths
from rekindle.core.command import Command, tell_pip
from rekindle.core.errors import NotFound, UsageError

F = TypeVar("F", bound=Callable[..., Any])


def complete_card(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of cards for the shell, with hyphens for spaces: a shell cuts words at spaces, Rekindle reads both."""
    from rekindle.knowledge.gpu import gpus as table

    begun = incomplete.strip("\"'").lower().replace(" ", "-")
    names = {gpu.name.removeprefix("GeForce ").lower().replace(" ", "-") for gpu in table.gpus()}
    plain = {name for name in names if re.fullmatch(r"[a-z0-9.+-]+", name)}
    return sorted(name for name in plain - {"gpu"} if name.startswith(begun))


class Typed(click.ParamType):  # type: ignore[type-arg]
    """What people type, read by the one reader of its kind: every verb takes and refuses the same.

    A verb gets it as it was typed, or `plain`, as the reader spells it.
    """

    def __init__(self, reader: str, *, plain: bool = False) -> None:
        self.name = reader
        self.plain = plain

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        room, _, name = self.name.partition(".")
        read = getattr(importlib.import_module(f"rekindle.inputs.{room}"), name)(value)
        if room == "system" and getattr(read, "system", paths.system()) != paths.system():
            console.pasted_here(None)  # what is printed is for another computer
        return str(read if self.plain else value)


_TORCH, ANY_TORCH = Typed("torch.read_torch"), Typed("torch.read_any_torch")
_CUDA = Typed("versions.read_cuda", plain=True)
_SYSTEM, _PYTHON = Typed("system.read_system"), Typed("versions.read_python", plain=True)
_PROCESSOR, TOOLSET = Typed("system.read_processor", plain=True), Typed("versions.read_toolset", plain=True)


def _typed(option: str, type: Typed, metavar: str, help: str) -> Callable[[F], F]:
    return click.option(option, type=type, metavar=metavar, help=help)


def extensions(help: str) -> Callable[[F], F]:
    return click.option("--with", "extensions", multiple=True, metavar="NAME", help=f"{help} May be repeated.")


def torch(help: str, type: Typed = _TORCH) -> Callable[[F], F]:
    return _typed("--torch", type, "X.Y.Z", help)


def cuda(help: str = "A CUDA toolkit version, e.g. 12.6.") -> Callable[[F], F]:
    return _typed("--cuda", _CUDA, "X.Y", help)


def path(
    option: str, metavar: str, help: str, *, name: str | None = None, written: bool = False, **more: Any
) -> Callable[[F], F]:
    """An option that takes a file or a folder; one that is `written` must lie in a folder that exists."""
    kind: Any = OutputPath() if written else click.Path(path_type=Path)
    return click.option(option, *((name,) if name else ()), type=kind, metavar=metavar, help=help, **more)


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
jobs = click.option(
    "--jobs", type=click.IntRange(1), metavar="N", help="Processes to use; one for each core if not given."
)
_gpus = click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_card,
    help="A GPU by name, PCI id or sm_XX, or a list: '8x A100', 'V100,P100'. May be repeated.",
)


def gpus(command: F) -> F:
    """`--gpu`, read once the rest of the line is: words that follow a name may be the rest of it without its quotes."""

    @functools.wraps(command)
    def known(*args: Any, **given: Any) -> Any:
        from rekindle.knowledge.gpu.gpus import find_all

        find_all(given["gpus"], undecided=True)
        return command(*args, **given)

    return _gpus(known)  # type: ignore[return-value]


any_torch = torch("A PyTorch release, or a range: '>=2.6,<2.9'.")
arch = _typed("--arch", _PROCESSOR, "ARCH", "Answer for this processor: x86_64 or aarch64.")
system = click.option("--os", "system", type=_SYSTEM, metavar="OS", help="Answer for this system: windows or linux.")
_TORCHVISION = Typed("torch.read_torchvision", plain=True)
torchvision = _typed("--torchvision", _TORCHVISION, "X.Y", "A torchvision version that must work with it.")
python = _typed("--python", _PYTHON, "X.Y", "Answer for this Python, e.g. 3.11.")
_driver_help = "Answer for this NVIDIA driver, e.g. 550.54.14 or a branch: 550."
driver = _typed("--driver", Typed("driver.read_driver"), "VERSION", _driver_help)
_toolset_help = "An MSVC toolset: a version of Visual Studio's compiler, e.g. 14.29."
toolset = _typed("--toolset", TOOLSET, "14.X", _toolset_help)
profile = click.option(
    "--profile",
    type=click.Choice(["fast", "compat", "minimal"]),
    help="Fast on recent CPUs, compatible with old ones, or as small as possible.",
)
machine = path("--machine", "FILE", "Answer for the machine recorded in this snapshot instead of this one.")
shelf = path("--shelf", "DIR", "The folder of your own wheels; also REKINDLE_SHELF.")
shelves = click.option(
    "--shelf",
    "shelves",
    multiple=True,
    metavar="DIR|URL",
    help="Also use wheels from this shelf. May be repeated; also REKINDLE_SHELF and config.toml.",
)
trust = click.option(
    "--trust", multiple=True, metavar="KEY", help="Trust what is signed with this public key. May be repeated."
)
_BUILD_QUESTION = (
    click.argument("plan", type=click.Path(path_type=Path), metavar="[PLAN]", required=False),
    click.option(
        "-D", "pairs", multiple=True, metavar="NAME=VALUE", help="Set an option of the build. May be repeated."
    ),
    click.option("--allow-unknown", is_flag=True, help="Pass on options that this release does not have."),
    gpus,
    any_torch,
    cuda(),
    python,
    toolset,
    profile,
)
dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")


def build_question(command: F) -> F:
    """The plan of a build, or what stands in for one: the options by which `env` and `shell` are told which build."""
    for decorate in reversed(_BUILD_QUESTION):
        command = decorate(command)
    return command


class Several(click.Choice):  # type: ignore[type-arg]
    """One of the choices, or several with commas between."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return ",".join(super(Several, self).convert(each.strip(), param, ctx) for each in str(value).split(","))


def given(*names: str) -> list[str]:
    """Which of these options are on the command line."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    return [name for name in names if context.get_parameter_source(name) is typed]


def exclude(leading: str, others: Iterable[str], *, hint: str | None = None) -> None:
    """Refuse what `leading` leaves no use for: an option that is given is used or refused, never dropped."""
    extra = [name for name in given(*others) if name != leading]
    if not extra:
        return
    spelled = {option.name: option.opts[0] for option in click.get_current_context().command.params}
    message = f"`{spelled[leading]}` cannot be combined with {', '.join(f'`{spelled[name]}`' for name in extra)}"
    raise UsageError(
        message, hint=hint or f"leave out one of them; see `{click.get_current_context().command_path} --help`"
    )


_SITES = ("lib/python3*/site-packages", "Lib/site-packages")


def python_of_this_folder(wanted: str | None = None) -> str | None:
    """The version of the Python that an application's folder has: from here on the printed pip is that one's.

    Nothing is told of another than the one that is `wanted`.
    """
    there = [Path(name).resolve() for name in paths.BROUGHT_PYTHONS if Path(name).is_dir()]
    if active := os.environ.get("VIRTUAL_ENV"):
        every = [site for each in _SITES for site in Path(active).glob(each)]
        if every and not any((site / "pip").is_dir() for site in every):
            tell_pip(uv=True)  # uv made it without one
    if set(there) <= {Path(sys.prefix).resolve()}:
        return None  # what reads environments takes a while to import
    from rekindle.machine.python.environment import beside

    found = beside()
    if found is None or wanted not in (None, found.version):
        return None
    console.say(f"for the Python of this folder, `{found.program}`")
    tell_pip(own.shown(Path(found.program)), uv=found.pip is None)
    return found.version


def _how_to_talk(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def take(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            console.talk(**{name: True})

    return take


def _told_shell(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        from rekindle.core.command import Shell, tell_shell

        tell_shell(Shell(value))


class _NamedPath(click.Path):
    """A path with a name: an empty one, as of a variable that is not set, is not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; `.` is the current folder.", param, ctx)
        return super().convert(value, param, ctx)


def talking(command: click.Command) -> click.Command:
    """Every verb takes these four, and so does every verb of a group."""
    about = (
        ("-q", "--quiet", "quiet", "Print the answer and errors only."),
        ("-v", "--verbose", "verbose", "Also say which programs are run and what is downloaded."),
        ("", "--no-color", "plain", "Print without colour; also NO_COLOR."),
    )
    taken = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if "--quiet" in taken:
        return command
    for parameter in command.params:
        if type(parameter.type) is click.Path:
            named = _NamedPath()
            # What reads it says why it cannot, with the exit code of that, where click would blame the command line.
            vars(named).update(vars(parameter.type), readable=False)
            parameter.type = named
    for short, long, name, help in about:
        names = [each for each in (short, long) if each and each not in taken]
        option = click.Option(names, is_flag=True, expose_value=False, help=help, callback=_how_to_talk(name))
        command.params.append(option)
    if "--shell" not in taken:
        shells = click.Choice(["sh", "cmd", "powershell"])
        about_it = "Print commands for this shell. Without it: for yours, and for PowerShell with --os windows."
        option = click.Option(
            ["--shell", "told_shell"], type=shells, expose_value=False, help=about_it, callback=_told_shell
        )
        command.params.append(option)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            # The list of a group would cut it off in the middle of its first sentence.
            each.short_help = " ".join((each.help or "").split()).partition(". ")[0].removesuffix(".") + "."
            talking(each)
    return command


def once(command: click.Command) -> click.Command:
    """Every option that takes one value refuses a second one, where click would take the last and say nothing.

    A verb is asked for many times in one process (the tests, `serve`, the library); it is prepared once.
    """
    if getattr(command.make_parser, "refuses", False):
        return command
    made = command.make_parser

    def make_parser(ctx: click.Context) -> Any:
        parser: Any = made(ctx)
        for option in command.params:
            if isinstance(option, click.Option) and not option.multiple and not option.is_flag and not option.count:
                for name in option.opts:
                    _refuse_second(parser, option, name)
        return parser

    make_parser.refuses = True  # type: ignore[attr-defined]
    command.make_parser = make_parser  # type: ignore[method-assign]
    return command


def _refuse_second(parser: Any, option: click.Option, name: str) -> None:
    reader = parser._long_opt.get(name) or parser._short_opt.get(name)
    if reader is None:
        return
    read = reader.process

    def process(value: Any, state: Any) -> None:
        if option.name in state.opts:
            raise click.UsageError(f"`{name}` was given twice")
        read(value, state)

    reader.process = process


def output(help: str) -> Callable[[F], F]:
    return click.option("-o", "--output", type=OutputPath(), metavar="PATH", help=help)


class OutputPath(click.ParamType):  # type: ignore[type-arg]
    """A file or folder to be made. What it lies in must exist: a mistyped path is not made up."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":
            self.fail("it is empty; `.` is the current folder.", param, ctx)
        path = Path(value)
        if str(path) != "-" and not path.absolute().parent.is_dir():
            folder = path.absolute().parent
            raise NotFound(f"there is no folder `{folder}` to write `{path.name}` into", hint=f"`{made(folder)}`")
        return path


def made(folder: Path) -> Command:
    """What makes a folder, with those it lies in."""
    return Command("mkdir", *(("-p",) if paths.system() != "windows" else ()), str(folder))


def confirmed(question: str) -> bool:
    """Whether a person says yes; nobody to ask means no."""
    return sys.stdin.isatty() and click.confirm(question, err=True)
