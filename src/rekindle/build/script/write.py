"""`rekindle build --script FILE`: the plan as a script, in the shell that the file's name says; and `--container FILE`:
as a Dockerfile whose last stage holds the shelf and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from rekindle.build.command import BuildCommand, check_submodules, lacking, look, resolve, wanted_by
from rekindle.build.configure import options, request, tools
from rekindle.build.configure.compiler_cache import ANY
from rekindle.build.configure.request import BuildFile
from rekindle.build.configure.usual import completed, usual
from rekindle.build.script import cmd, ps1, script, sh
from rekindle.core import command, console, files, own, paths
from rekindle.core.errors import UsageError
from rekindle.core.findings import Finding, Fix, warned
from rekindle.machine.model import Machine
from rekindle.stack import plan as plans

_KINDS: dict[str, tuple[str, Callable[[script.Script, str], str], str]] = {
    ".cmd": ("windows", cmd.text, "\r\n"),
    ".ps1": ("windows", ps1.text, "\r\n"),
    ".sh": ("linux", sh.text, "\n"),
}


LATER = "not-here-yet"


class ScriptReport(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.build-script/1"
    path: str
    kind: str
    """`cmd`, `ps1` or `sh`."""
    system: str
    title: str
    work: str
    """Where it builds."""
    version: str
    """What the wheel will call itself."""
    steps: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    written: bool = True
    elsewhere: bool = False
    """It is for another computer than this one."""


_STEPS = "the script itself takes `--from STEP` and `--until STEP`"
_NOT_IN_A_SCRIPT = {
    "start": ("--from", _STEPS),
    "until": ("--until", _STEPS),
    "clean": ("--clean", "delete the script's work folder to start over"),
    "auto_fix": ("--auto-fix", "a script cannot fix a build; `rekindle diagnose` reads its logs"),
    "bundle": ("--bundle", "set `PIP_NO_INDEX=1` and `PIP_FIND_LINKS=DIR` where the script runs"),
}


def write(command: BuildCommand) -> ScriptReport:
    assert command.script is not None
    path = command.script
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        message = f"cannot tell the shell from `{path.name}`"
        raise UsageError(message, hint="call it `build.cmd`, `build.ps1` (Windows) or `build.sh` (Linux)")
    for field, (name, hint) in _NOT_IN_A_SCRIPT.items():
        given = getattr(command, field)
        if given and given != "none":
            message = f"`{name}` cannot be combined with `--script`"
            raise UsageError(message, hint=hint)
    made, work, elsewhere, lacks = _composed(command)
    system, text, newline = kind
    if made.system != system:
        fitting = "build.sh" if made.system == "linux" else "build.cmd` or `build.ps1"
        message = f"this plan is for {made.system.capitalize()}, `{path.name}` is a script for {system.capitalize()}"
        raise UsageError(message, hint=f"call it `{fitting}`")
    body = text(made, path.name)
    if not command.dry_run:
        files.write_text(path, body, newline=newline)
        if path.suffix.lower() == ".sh":
            with contextlib.suppress(OSError):
                path.chmod(path.stat().st_mode | 0o755)
    return ScriptReport(
        path=str(path),
        kind=path.suffix.lower()[1:],
        system=made.system,
        title=made.title,
        work=work,
        version=made.version,
        steps=tuple(step.name for step in made.steps),
        findings=(*lacks, *made.options.findings),
        written=not command.dry_run,
        elsewhere=elsewhere,
    )


def _started(name: str) -> str:
    """How a script is started where nothing was set up for it: Windows runs no `.ps1` by its name."""
    if name.endswith(".ps1"):
        return f"powershell -ExecutionPolicy Bypass -File {name}"
    return rf".\{name}" if name.endswith((".cmd", ".bat")) else f"bash {name}"


def text(report: ScriptReport) -> str:
    """What a person sees."""
    done = "wrote" if report.written else "would write"
    where = "on that computer" if report.elsewhere else "here"
    return "\n".join(
        [
            console.wrap(f"{done} `{report.path}`: {report.title}"),
            console.wrap(", ".join(report.steps), first="steps   ", indent=" " * 8),
            f"wheel   {report.version}, in {report.work}",
            *(f"later   {each.found}" for each in report.findings if each.id == LATER),
            f"Run it {where}; `{_started(Path(report.path).name)} --help` says how. It needs no Rekindle.",
        ]
    )


def _composed(command: BuildCommand) -> tuple[script.Script, str, bool, tuple[Finding, ...]]:
    seen, elsewhere, lacks = _machine(command)
    resolved = resolve(command, seen, elsewhere=elsewhere)
    if resolved.base is not None:
        message = "a graft is not written as a script: its proofs need Rekindle"
        raise UsageError(message, hint="leave `--script` out, or `--graft`")
    if not elsewhere:
        check_submodules(resolved)
    chosen = options.resolve(resolved, options.parse(command.pairs), allow_unknown=command.allow_unknown)
    given = command.work
    work = (given.as_posix() if resolved.system == "linux" else str(given)) if given else _work(resolved)
    if not resolved.paths.isabs(work):
        work = str(Path(work).resolve())
    many = command.jobs or tools.jobs_for(seen, cuda=resolved.cuda is not None)
    made = script.compose(
        resolved, chosen, work=work, jobs=many, beside=elsewhere, launcher=_launcher(command.launcher)
    )
    return made, work, elsewhere, lacks


def _machine(command: BuildCommand) -> tuple[Machine, bool, tuple[Finding, ...]]:
    """The computer that the script is for, whether it is another one (recorded, or as a plan for it says), and what
    this one lacks yet."""
    kind = _KINDS[str(command.script and command.script.suffix.lower())][0]
    wanted = wanted_by(command)
    here = (paths.system(), paths.architecture())
    if command.machine is None and wanted.system and wanted.arch and (kind, wanted.arch) != here:
        return usual(wanted, wanted.system, wanted.arch), True, ()
    seen, lacks = completed(wanted, look(command.machine))
    fix = Fix(text="install it before you run the script, or correct its place at the top of the script")
    return seen, command.machine is not None, tuple(warned(LATER, text, fix=fix) for text in lacks)


def _launcher(asked: str | None) -> str | None:
    """A program's name or path: whether it is there the script itself looks."""
    if asked in (None, "none"):
        return None
    if asked and "://" in asked:
        message = "`--cache URL` cannot be combined with `--script`"
        raise UsageError(message, hint="write `--cache sccache`, and set sccache's own variables where the script runs")
    return "sccache" if asked == ANY else asked


def _work(resolved: request.BuildRequest) -> str:
    """Short, and of its own: what a script does must not be mixed with what Rekindle itself keeps in its cache."""
    name = f"{resolved.name}-{resolved.release or resolved.version or '0'}"
    return f"C:\\rk\\{name}" if resolved.system == "windows" else f"/var/tmp/rk/{name}"


_PACKAGES = "ccache cmake g++ git ninja-build"
_VENV = "python3 -c 'import ensurepip' 2>/dev/null"
"""An image of Python's brings it; Debian's own has none, or one that cannot make environments."""
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_CONTAINER_HEAD = "# Written by `rekindle build --container`."


class ContainerFile(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle build --container`."""

    schema: str = "rekindle.container/1"
    path: str
    base: str
    copies: tuple[str, ...]
    """What it takes from the folder that it is built in."""
    tools: tuple[str, ...]


def write_container(plan: Path, path: Path, *, base: str | None = None, rekindle: str | None = None) -> ContainerFile:
    """Write the Dockerfile of a plan or build file. A file that somebody else wrote is never replaced."""
    wanted = request.read(plan)
    if request.is_plan(plan) and (system := plans.read(plan).system) != "linux":
        raise UsageError(f"this plan is for {system.capitalize()}", hint="a container is Linux; plan with `--os linux`")
    if base is not None and not _IMAGE.fullmatch(base):
        raise UsageError(f"`{base[:60]}` is not the name of an image", hint="write it like `python:3.12-bookworm`")
    if path.exists() and not files.read_bytes(path).startswith(_CONTAINER_HEAD.encode()):
        raise UsageError(f"`{path}` already exists and was not written by Rekindle", hint="name another file")
    python = wanted.python or ""
    made = ContainerFile(
        path=str(path),
        base=base or f"python:{python if python.replace('.', '').isdigit() else '3.12'}-bookworm",
        copies=_copies(wanted, plan, path),
        tools=_tools(wanted, plans.read(plan).machine if request.is_plan(plan) else paths.architecture()),
    )
    files.write_text(path, container_text(made, plan.name, own.elsewhere(rekindle)))
    return made


def container_text(made: ContainerFile, plan: str, rekindle: str) -> str:
    install = command.rekindle("toolchain", "install", *made.tools, "--accept-licence")
    tools = f"{command.dockerfile(install)}\n" if made.tools else ""
    own = command.pip("install", "--no-cache-dir", rekindle, python="/opt/rekindle/bin/python")
    build = command.rekindle("build", plan, "--yes", "--work", "/src/b", "--cache", "ccache")
    copies = "".join(f"COPY {json.dumps([name, f'/src/{name}'])}\n" for name in made.copies)
    terms = (
        "# By building it you accept the terms of NVIDIA's CUDA toolkit: `rekindle toolchain install` shows them.\n"
        if any(tool.startswith("cu") for tool in made.tools)
        else ""
    )
    return f"""{_CONTAINER_HEAD}
# The wheel and its statement come out with: docker build -f THIS_FILE -o shelf .
# UNVERIFIED: that the base image and Rekindle itself can be had; name others with `--base` and `--rekindle`.
{terms}ARG BASE={made.base}
FROM ${{BASE}} AS build
RUN apt-get update \\
 && apt-get install -y --no-install-recommends {_PACKAGES} $({_VENV} || echo python3 python3-venv) \\
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/rekindle
{command.dockerfile(own)}
ENV PATH=/opt/rekindle/bin:$PATH REKINDLE_SHELF=/shelf CCACHE_DIR=/ccache
{tools}WORKDIR /src
{copies}{command.dockerfile(build, "--mount=type=cache,target=/ccache")}
FROM scratch
COPY --from=build /shelf /
"""


def _copies(wanted: BuildFile, plan: Path, path: Path) -> tuple[str, ...]:
    """The plan, and a source of your own: both must lie beside the Dockerfile."""
    root = path.resolve().parent
    found = [plan.resolve()]
    if wanted.source:
        found.append((plan.resolve().parent / wanted.source).resolve())
    try:
        names = [each.relative_to(root).as_posix() for each in found]
    except ValueError as error:
        message = f"`{plan}` and its source must lie beside `{path}`"
        raise UsageError(message, hint="a container takes only what is in the folder it is built in") from error
    return (".",) if "." in names else tuple(names)


def _tools(wanted: BuildFile, arch: str) -> tuple[str, ...]:
    """What a bare Debian lacks. Its GCC may do: a CUDA brings another where it does not."""
    words = [tool for tool in lacking(wanted, Machine(os="linux", arch=arch)) if tool != "gcc"]
    if wanted.cuda is not None and len(words) > 1:
        words += ["--cuda", str(wanted.cuda.major_minor)]
    return tuple(words)
