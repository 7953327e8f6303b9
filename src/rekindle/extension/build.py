"""Builds a CUDA extension for the torch of an environment, and looks at what came out before anybody installs it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.audit.answer import AuditedCard, Torch
from rekindle.audit.audit import installed_torch
from rekindle.audit.mending import install_command
from rekindle.build.configure.environment import VariableChange
from rekindle.build.configure.render import render
from rekindle.build.run.build import captured
from rekindle.core import files
from rekindle.core.command import Command
from rekindle.core.errors import MissingTool, NotFound, UsageError
from rekindle.core.findings import Finding, State, worst
from rekindle.extension import companions
from rekindle.extension.candidates import candidate
from rekindle.extension.check import judged
from rekindle.extension.prepare import Preparation, Workbench, prepare
from rekindle.extension.wheel import keep, make
from rekindle.knowledge.builds import efforts
from rekindle.machine.model import Machine
from rekindle.machine.python.environment import find as find_environment
from rekindle.model.environment import Environment
from rekindle.wheels.inspect.inspection import inspect

Teller = Callable[[str], None]
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,]+\])?\s*([<>=!~]=?.*)?\Z")


class ExtensionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle extension build` and `check`. `wheel` None: none was made or found."""

    schema: str = "rekindle.extension/1"
    project: str
    environment: str
    torch: str
    cuda: str | None
    arch_list: str
    built: bool
    wheel: str | None
    targets: dict[str, int]
    findings: tuple[Finding, ...]
    state: State
    log: str | None = None
    command: Command | None = None
    """What installs the wheel into the environment that it is for."""


def ready(
    place: Path | None,
    cards: Sequence[AuditedCard],
    machine: Machine,
    *,
    temp: str,
    load: bool = True,
    ptx: bool = False,
) -> tuple[Environment, Torch, Preparation]:
    """The environment, its torch, and what a build in it would use.

    With `load`, the environment of Visual Studio's compiler is loaded; else it is left to the shell that gets it.
    """
    environment = find_environment(place)
    torch = installed_torch(environment)
    if torch is None:
        message = f"there is no torch in `{environment.root}`"
        hint = f"an extension is built for one torch: install that first: `{install_command(environment, cards)}`"
        hint += "" if cards else " (`--gpu` names a card)"
        raise NotFound(message, hint=hint)
    found = prepare(
        environment,
        torch,
        cards,
        machine,
        bench=Workbench(temp=temp, jobs=jobs(machine, os.environ), ptx=ptx),
        capture=(lambda request: captured(request, os.environ)) if load else lambda _: None,
    )
    return environment, torch, found


class ShellEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle extension env`."""

    schema: str = "rekindle.extension-env/1"
    shell: str
    arch_list: str
    changes: tuple[VariableChange, ...]
    text: str


def check(place: Path | None, *, cards: Sequence[AuditedCard], machine: Machine, ptx: bool = False) -> ExtensionReport:
    """Would a CUDA extension build here, with what, and for which cards? Nothing is built."""
    environment, torch, found = ready(place, cards, machine, temp=tempfile.gettempdir(), ptx=ptx)
    return _Report("pre-flight", environment, torch.version, found).of(wheel=None, built=False)


def shell_environment(
    place: Path | None, *, cards: Sequence[AuditedCard], machine: Machine, shell: str | None, ptx: bool = False
) -> ShellEnvironment:
    """The environment as lines for a shell; an error that says what is missing when there is none."""
    _, _, found = ready(place, cards, machine, temp=tempfile.gettempdir(), load=False, ptx=ptx)
    if found.environment is None:
        wrong = next(finding for finding in found.findings if finding.state is State.FAIL)
        raise MissingTool(wrong.found, hint=wrong.fix.text if wrong.fix else "`rekindle extension check` says more")
    chosen = shell or ("cmd" if machine.os == "windows" else "sh")
    text = render(found.environment, chosen)
    return ShellEnvironment(shell=chosen, arch_list=found.arch_list, changes=found.environment.changes, text=text)


class ExtensionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be built (a folder or a requirement), for which environment, and where the wheel goes."""

    project: str
    environment: Path | None = None
    output: Path
    from_source: bool = False
    ptx: bool = False
    mirror: Path | None = None
    """A folder of repositories from which the source of torchvision or torchaudio is taken."""


def build(
    request: ExtensionRequest,
    *,
    cards: Sequence[AuditedCard],
    machine: Machine,
    tell: Teller = lambda _: None,
) -> ExtensionReport:
    """A wheel of the project that serves the cards: found on the index, else built here."""
    project, output = request.project, request.output
    with files.scratch("ext") as work:
        environment, torch, found = ready(request.environment, cards, machine, temp=str(work), ptx=request.ptx)
        report = _Report(project, environment, torch.version, found)
        source = Path(project) if Path(project).is_dir() else None
        if source is None and not _REQUIREMENT.match(project):
            message = f"`{project[:80]}` is neither a folder nor a requirement"
            raise UsageError(message, hint="give the folder of the project, or a name like `torchvision==0.22.1`")
        companion = companions.named(project, torch.version) if source is None else None
        if companion is not None:
            project = companion.requirement
            report.findings.append(companions.finding(companion))
            found = found.with_changes(companions.changes(companion))
        if source is None:
            found = found.with_changes(companions.told(project, found.arch_list))
        # Whether a wheel serves cannot be told without a GPU.
        if source is None and cards and not request.from_source:
            wheel, finding = candidate(project, environment, torch, cards, work, tell)
            if wheel is not None and finding is not None:
                kept = keep(wheel, output)
                return report.of(wheel=kept, built=False, more=[finding], targets=inspect(kept).targets)
            report.findings += [finding] if finding else []
        refusal = companions.refused(project, cards) if source is None else None
        report.findings += [refusal] if refusal else []
        if found.environment is None or found.request is None or refusal is not None:
            return report.of(wheel=None, built=False)
        if companion is not None:
            source = companions.bring(companion, work / "source", request.mirror, tell)
        tell(f"building {project} for {found.arch_list} with CUDA in {found.toolkit}")
        built, log = make(project, source, environment, found, work=work, output=output, tell=tell)
        verdict = judged(built, found.arch_list, cards, environment, torch, work)
        return report.of(wheel=built, built=True, more=verdict, log=log)


class _Report:
    def __init__(self, project: str, environment: Environment, torch: str, found: Preparation) -> None:
        self.project = project
        self.environment = environment
        self.torch = torch
        self.found = found
        self.findings = list(found.findings)

    def of(
        self,
        *,
        wheel: Path | None,
        built: bool,
        more: Sequence[Finding] = (),
        targets: dict[str, int] | None = None,
        log: Path | None = None,
    ) -> ExtensionReport:
        findings = (*self.findings, *more)
        cuda = self.found.request.cuda if self.found.request else None
        return ExtensionReport(
            project=self.project,
            environment=self.environment.root,
            torch=self.torch,
            cuda=str(cuda.version) if cuda else None,
            arch_list=self.found.arch_list,
            built=built,
            wheel=str(wheel) if wheel else None,
            targets=targets if targets is not None else (inspect(wheel).targets if wheel else {}),
            findings=findings,
            # A wheel of the index that serves needs no toolkit here.
            state=worst(more) if wheel and not built else worst(findings),
            log=str(log) if log else None,
            command=self.environment.pip_command("install", str(wheel)) if wheel else None,
        )


def jobs(machine: Machine, environ: Mapping[str, str]) -> int:
    """How many compilers at once: what there is memory for, or the MAX_JOBS of the shell when that is fewer."""
    memory = machine.memory.available or machine.memory.usable
    fitting = efforts.jobs(machine.processor.cores, memory) or 1
    asked = environ.get("MAX_JOBS", "").strip()
    return max(1, min(fitting, int(asked))) if asked.isascii() and asked.isdigit() else fitting
