"""Builds a CUDA extension for the torch of an environment, and looks at what came out before anybody installs it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.audit.audit import installed_torch
from rekindle.audit.cards import install_command
from rekindle.build.configure.environment import VariableChange
from rekindle.build.configure.render import render
from rekindle.build.governor.governor import make_gate, summary
from rekindle.build.governor.server import Governor
from rekindle.build.run import fixes, journal
from rekindle.build.run.build import captured
from rekindle.build.run.journal import Journal
from rekindle.compat.feature_card import has
from rekindle.core import codec, files, python, untrusted
from rekindle.core.command import Command, rekindle, sh
from rekindle.core.errors import BadInput, MissingTool, NotFound, StepFailed, UsageError
from rekindle.core.findings import Finding, State, worst
from rekindle.core.programs import which
from rekindle.core.run import call, checked
from rekindle.diagnose import report
from rekindle.diagnose.answer import Diagnosis
from rekindle.extension import companions
from rekindle.extension.candidates import candidate
from rekindle.extension.check import judged
from rekindle.extension.prepare import Preparation, Workbench, prepare
from rekindle.inputs.package import read_extension
from rekindle.knowledge.builds import costs
from rekindle.machine.model import InstalledTorch, Machine
from rekindle.machine.python.environment import find as find_environment
from rekindle.machine.python.interpreters import DISTRIBUTION_FOLDER
from rekindle.model.card import NamedCard
from rekindle.model.environment import Environment
from rekindle.model.requirement import canonical_name, holds, requirement
from rekindle.wheels.inspect.inspection import inspect

LOG = "extension-build.log"
_FETCHING = 1800.0
_LEFT_BEHIND = ("build", "dist", "*.egg-info", ".git", "__pycache__", "*.so", "*.pyd", "*.o", "*.obj")
# What a line of ninja or of setuptools looks like: `[3/12] nvcc …`.
_STEP = re.compile(r"(?:\S+ )?\[(\d{1,9})/(\d{1,9})\] ")


def make(
    project: str,
    source: Path | None,
    environment: Environment,
    found: Preparation,
    *,
    work: Path,
    output: Path,
    tell: Callable[[str], None],
) -> tuple[Path, Path]:
    """The wheel and the log. `source` None: pip fetches the sdist of the requirement `project`."""
    assert found.environment is not None
    assert found.builder is not None
    environ = {**found.environment.over(os.environ), "PYTHONUNBUFFERED": "1"}
    if found.paths:
        environ["PYTHONPATH"] = os.pathsep.join(found.paths)
    folder = _copied(source, work) if source else None
    requirements = build_requirements(folder) if folder else ["setuptools", "wheel", "ninja"]
    environ = _with_requirements(environment, found, requirements, environ, work)
    wheels = work / "wheels"
    words = ["wheel", "-v", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", str(wheels)]
    words += [str(folder)] if folder else ["--no-binary=:all:", project]
    log = output / LOG
    output.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    with _governed(found, environ, work, tell) as governed:
        code = journal.run_program(
            python.pip(found.builder, *words),
            journal.StepLog(step="the extension", log=log, journal=Journal(work / "journal.jsonl")),
            env=governed,
            cwd=work,
            observe=_progress(tell),
        )
    wheel = next(iter(wheels.glob("*.whl")), None)
    if code or wheel is None:
        raise _failure(project, log, found)
    return keep(wheel, output), log


def keep(wheel: Path, output: Path) -> Path:
    target = output / wheel.name
    with wheel.open("rb") as made, files.replacing(target) as stream:
        shutil.copyfileobj(made, stream)
    return target


class _BuildSystem(msgspec.Struct, frozen=True):
    requires: tuple[str, ...] = ("setuptools", "wheel")


class _Project(msgspec.Struct, frozen=True):
    build: _BuildSystem | None = msgspec.field(default=None, name="build-system")


def build_requirements(source: Path) -> list[str]:
    """What the project needs to be built, without torch, which is there."""
    file = source / "pyproject.toml"
    needed = ["setuptools", "wheel"]
    if file.is_file():
        project = codec.from_toml(files.read_bytes(file, limit=16 << 20), _Project, name=f"`{file}`")
        needed = list(project.build.requires) if project.build else needed
        if option := next((entry for entry in needed if entry.lstrip().startswith("-")), None):
            raise BadInput(f"`{file}` requires `{untrusted.printable(option)}`", hint="that is an option, no package")
    kept = [entry for entry in needed if not re.match(r"(?i)torch(?![\w-])", entry)]
    return [*kept, "ninja"]


def _copied(source: Path, work: Path) -> Path:
    """A copy: an earlier build's objects for other cards would be taken for this one's."""
    target = work / "source"
    if source.resolve() == target.resolve():
        return target
    return Path(shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_LEFT_BEHIND)))


@contextlib.contextmanager
def _governed(
    found: Preparation, environ: dict[str, str], work: Path, tell: Callable[[str], None]
) -> Iterator[dict[str, str]]:
    """A gate before nvcc, which waits there while memory is short. torch takes another nvcc as one word, on Linux only.

    How many compilers ninja starts is in MAX_JOBS; the gate knows what each of them takes.
    """
    request = found.request
    kit = request.cuda if request else None
    gate = make_gate(work, request, environ) if request and kit and request.system == "linux" else None
    if gate is None or kit is None:
        yield environ
        return
    wrapper = work / "gated" / "nvcc"
    files.write_text(wrapper, f'#!/bin/sh\nexec {sh(Command(gate, kit.nvcc))} "$@"\n')
    wrapper.chmod(0o755)
    jobs = int(environ.get("MAX_JOBS") or 1)
    with Governor(jobs, compiles=work / "compiles.jsonl", tokens=False, tell=tell) as governor:
        yield {**governor.environment(environ), "PYTORCH_NVCC": str(wrapper)}
        said = summary(governor.use)
        if said:
            tell(said)


def _progress(tell: Callable[[str], None]) -> Callable[[str], None]:
    last = -1

    def observe(line: str) -> None:
        nonlocal last
        match = _STEP.match(line.strip())
        if match and int(match[1]) != last:
            last = int(match[1])
            tell(f"  {match[1]} of {match[2]} files")

    return observe


def _failure(project: str, log: Path, found: Preparation) -> StepFailed:
    message = f"`{project}` could not be built"
    diagnosis = fixes.diagnose_log(log, found.request) if found.request else None
    if diagnosis is not None and found.builder is not None:
        diagnosis = for_python(diagnosis, found.builder)
    elsewhere = _elsewhere(found)
    if diagnosis is not None and diagnosis.causes:
        return StepFailed(f"{message}\n\n{report.text(diagnosis)}", hint=f"the full log is in `{log}`{elsewhere}")
    hint = f"no known cause; read the end of `{log}`, or `{rekindle('diagnose', str(log))}`{elsewhere}"
    return StepFailed(message, hint=hint)


def for_python(diagnosis: Diagnosis, program: str) -> Diagnosis:
    """The same with the commands of pip for the Python that ran the build, which need not be the active one."""
    causes = tuple(
        msgspec.structs.replace(
            cause,
            fix=msgspec.structs.replace(
                cause.fix, commands=tuple(each.by_pip_of(program, "-m", "pip") for each in cause.fix.commands)
            ),
        )
        for cause in diagnosis.causes
    )
    return msgspec.structs.replace(diagnosis, causes=causes)


def _elsewhere(found: Preparation) -> str:
    """Extensions are made on Linux first: where Windows keeps refusing, WSL 2 may do, on the cards it serves."""
    cards = [target.capability for target in found.request.gpu_targets] if found.request else []
    if not cards or found.request is None or found.request.system != "windows" or not has("wsl", min(cards)):
        return ""
    return "\nif it keeps failing: most extensions are made for Linux; WSL 2 runs them, unless the card is in TCC mode"


def _with_requirements(
    environment: Environment, found: Preparation, needed: list[str], environ: dict[str, str], work: Path
) -> dict[str, str]:
    """What is not there yet goes into a folder of its own: the user's environment stays as it is."""
    missing = [text for text in needed if not satisfied(text, environment, environ)]
    if not missing:
        return environ
    assert found.builder is not None
    folder = work / "requirements"
    words = ["install", "-q", "--target", str(folder), *missing]
    result = call(python.pip(found.builder, *words), env=environ, timeout=_FETCHING)
    checked(result, doing="install the build requirements", hint="check the network, or install them by hand")
    path = os.pathsep.join([str(folder / "bin"), environ.get("PATH", "")])
    modules = os.pathsep.join(filter(None, [str(folder), environ.get("PYTHONPATH", "")]))
    return {**environ, "PYTHONPATH": modules, "PATH": path}


def satisfied(text: str, environment: Environment, environ: Mapping[str, str]) -> bool:
    """Is this requirement met in the environment? A ninja anywhere on PATH is as good as the package's."""
    asked = requirement(text)
    if asked is None:
        return False
    if not holds(asked, {}):
        return True
    if asked.name == "ninja" and which("ninja", environ.get("PATH", "")):
        return True
    for folder in environment.site_packages:
        for path in Path(folder).glob("*-info"):
            info = re.fullmatch(DISTRIBUTION_FOLDER, path.name)
            if info and canonical_name(info[1]) == canonical_name(asked.name):
                return asked.specifier.contains(info[2], prereleases=True)
    return False


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
    cards: Sequence[NamedCard],
    machine: Machine,
    *,
    temp: str,
    load: bool = True,
    ptx: bool = False,
) -> tuple[Environment, InstalledTorch, Preparation]:
    """The environment, its torch, and what a build in it would use.

    With `load`, the environment of Visual Studio's compiler is loaded; else it is left to the shell that gets it.
    """
    environment = find_environment(place)
    torch = installed_torch(environment)
    if torch is None:
        message = f"there is no torch in `{environment.root}`"
        hint = f"an extension is built for one torch: install that first: `{install_command(environment, cards)}`"
        hint += "" if cards else " (`--gpu` names a card)"
        hint += "" if place else "; `--env ENV` names another environment"
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


def check(place: Path | None, *, cards: Sequence[NamedCard], machine: Machine, ptx: bool = False) -> ExtensionReport:
    """Would a CUDA extension build here, with what, and for which cards? Nothing is built."""
    environment, torch, found = ready(place, cards, machine, temp=tempfile.gettempdir(), ptx=ptx)
    return _Report("pre-flight", environment, torch.version, found).of(wheel=None, built=False)


def shell_environment(
    place: Path | None, *, cards: Sequence[NamedCard], machine: Machine, shell: str | None, ptx: bool = False
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
    cards: Sequence[NamedCard],
    machine: Machine,
    tell: Teller = lambda _: None,
) -> ExtensionReport:
    """A wheel of the project that serves the cards: found on the index, else built here."""
    project, output = request.project, request.output
    source = Path(project) if Path(project).is_dir() else None
    if source is None and re.search(r"[/\\]", project) and "://" not in project:
        raise NotFound.path(project, "folder")
    if source is None and not _REQUIREMENT.match(project):
        message = f"`{project[:80]}` is neither a folder nor a requirement"
        raise UsageError(message, hint="give the folder of the project, or a name like `torchvision==0.22.1`")
    if source is None:
        read_extension(re.split(r"[^\w.-]", project, maxsplit=1)[0])
    with files.scratch("ext") as work:
        environment, torch, found = ready(request.environment, cards, machine, temp=str(work), ptx=request.ptx)
        report = _Report(project, environment, torch.version, found)
        companion = companions.companion_from_requirement(project, torch.version) if source is None else None
        if companion is not None:
            project = companion.requirement
            report.findings.append(companions.finding(companion))
            found = found.with_changes(companions.changes(companion))
        if source is None:
            found = found.with_changes(companions.build_variables(project, found.arch_list))
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
            source, believed = companions.bring(companion, work / "source", request.mirror, tell)
            report.findings += believed
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
    fitting = costs.jobs(machine.processor.cores, memory) or 1
    asked = environ.get("MAX_JOBS", "").strip()
    return max(1, min(fitting, int(asked))) if re.fullmatch("[0-9]{1,9}", asked) else fitting
