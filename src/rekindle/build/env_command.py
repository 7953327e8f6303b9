"""What `rekindle env` and `rekindle shell` answer: the environment that a build runs in, and why."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from rekindle.build.command import elsewhere_root, look
from rekindle.build.configure import options, render, request
from rekindle.build.configure.environment import BuildEnvironment, Variable, difference
from rekindle.build.configure.options import Choices, Resolved
from rekindle.build.configure.request import BuildFile
from rekindle.build.run import build as whole
from rekindle.build.run.folders import folder_of, without_spaces
from rekindle.compat.driver_cuda import newest_full
from rekindle.compat.toolkit_card import arch_list
from rekindle.core import console, files
from rekindle.core.errors import UsageError
from rekindle.core.findings import Finding
from rekindle.core.processes import attached
from rekindle.core.programs import is_absolute
from rekindle.inputs.torch import read_torch, with_cuda
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.machine.model import Machine


class EnvCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed after `rekindle env`: a plan, or what stands in for one."""

    plan: Path | None = None
    machine: Path | None = None
    gpus: tuple[str, ...] = ()
    torch: str | None = None
    cuda: str | None = None
    python: str | None = None
    toolset: str | None = None
    profile: str | None = None
    pairs: tuple[str, ...] = ()
    allow_unknown: bool = False
    shell: str | None = None


class EnvReport(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.env/1"
    system: str
    vcvars: str | None
    """Windows: the command that has to be called first; None where its variables are in the list."""
    variables: tuple[Variable, ...]
    options: tuple[Resolved, ...]
    findings: tuple[Finding, ...]
    version: str


class OptionsReport(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.env-options/1"
    torch: str
    options: tuple[options.Described, ...]


def environment(command: EnvCommand) -> tuple[EnvReport, BuildEnvironment]:
    """What the build of this plan (or of what the command line says) would run in."""
    seen = look(command.machine)
    if command.plan is not None:
        wanted, here = request.read(command.plan), command.plan.resolve().parent
    else:
        wanted, here = _wanted(command, seen), None
    resolved = request.resolve(wanted, seen, here=here)
    # On another machine the cache's place is not known.
    root = elsewhere_root(resolved) if command.machine else str(without_spaces(folder_of(resolved)))
    before = seen.environment if command.machine is not None else dict(os.environ)
    choices = Choices(overrides=options.parse(command.pairs), allow_unknown=command.allow_unknown)
    capture = command.machine is None and not command.shell
    chosen, computed, _, version = whole.prepare(resolved, choices, root, before, capture=capture)
    report = EnvReport(
        system=resolved.system,
        vcvars=computed.vcvars,
        variables=difference(before, computed),
        options=chosen.resolved,
        findings=chosen.findings,
        version=version,
    )
    return report, computed


def list_options(command: EnvCommand) -> OptionsReport:
    """The options of the plan's release, of the one that was named, or of the newest."""
    planned = request.read(command.plan).torch if command.plan is not None else None
    torch = read_torch(command.torch).release if command.torch else planned or torch_releases()[-1].minor
    return OptionsReport(torch=torch, options=options.describe(torch))


def environment_text(report: EnvReport, *, diff: bool) -> str:
    lines = [f"call {report.vcvars}"] if report.vcvars else []
    for each in report.variables:
        if diff:
            lines += [f"- {each.name}={each.before}"] if each.before is not None else []
            lines += [f"+ {each.name}={each.after}"] if each.after is not None else []
            lines += [f"    {each.why}"] if each.why else []
        elif each.after is not None:
            lines.append(f"{each.name}={each.after}")
    return "\n".join(lines)


def options_text(report: OptionsReport) -> str:
    rows = [
        (
            each.name,
            each.default or "",
            f"{each.first}-{each.last}",
            "; ".join(filter(None, (each.condition, each.effect))),
        )
        for each in report.options
    ]
    return console.table(rows, head=("option", "default", "releases", "condition and effect"))


def open_shell(command: EnvCommand, tell: Callable[[str], None]) -> int:
    """The user's own shell in the build's environment; its exit code when it is left."""
    report, computed = environment(command)
    environ = computed.over(os.environ)
    windows = os.name == "nt"
    named = os.environ.get("COMSPEC" if windows else "SHELL", "")
    # One that depends on where one stands may be anybody's.
    shell = named if is_absolute(named, windows=windows) else "cmd.exe" if windows else "/bin/sh"
    words = (shell, *(("/k", "prompt", "(rekindle) $P$G") if windows else ("-i",)))
    tell(f"{len(report.variables)} variables set for {report.version}; `exit` leaves")
    return attached(words, env=environ)


def write_launcher(command: EnvCommand, path: Path) -> None:
    """The same as a file: what `env --cmd` prints, and then a prompt."""
    kind = path.suffix.lower()
    endings = {
        ".cmd": ("cmd", "@echo off\n{0}prompt (rekindle) $P$G\ncmd /k\n", "\r\n"),
        ".ps1": ("ps1", "{0}powershell -NoExit -NoLogo\n", "\r\n"),
        ".sh": ("sh", '#!/usr/bin/env bash\n{0}exec "${{SHELL:-/bin/sh}}" -i\n', "\n"),
    }
    if kind not in endings:
        message = f"cannot tell the shell from `{path.name}`"
        raise UsageError(message, hint="call it `prompt.cmd`, `prompt.ps1` or `prompt.sh`")
    shell, text, newline = endings[kind]
    _, computed = environment(msgspec.structs.replace(command, shell=shell))
    files.write_text(path, text.format(render.render(computed, shell)), newline=newline)
    if kind == ".sh":
        path.chmod(0o755)


def _wanted(command: EnvCommand, seen: Machine) -> BuildFile:
    from rekindle.knowledge.gpu.gpus import capabilities_of

    named = capabilities_of(command.gpus)
    torch, cuda = with_cuda(command.torch, command.cuda)
    chosen = seen.toolkit if cuda is None and seen.toolkit else None
    version = cuda or (chosen.version if chosen else None)
    cards = {*named} or {*seen.capabilities}
    listed = ";".join(map(str, sorted(cards)))
    if version is not None:
        full = newest_full(seen.driven_by) if seen.driven_by else version
        listed = arch_list(cards, version.major_minor, jit=full is not None and full >= version.major_minor)
    return BuildFile(
        source=".",
        torch=torch.release if command.torch else None,
        cuda=cuda or (chosen.version.major_minor if chosen and chosen.version else None),
        arch_list=listed,
        python=command.python,
        toolset=command.toolset,
        profile=command.profile or "fast",
    )
