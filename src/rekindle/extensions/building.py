"""Builds a CUDA extension for the torch of an environment, and looks at what came out before anybody installs it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rekindle import files
from rekindle.build.environment import Change
from rekindle.build.render import render
from rekindle.build.request import BuildRequest
from rekindle.errors import MissingTool, NotFound, StepFailed, UsageError
from rekindle.extensions.audit import installed_torch
from rekindle.extensions.environment import Environment, open_environment
from rekindle.extensions.preparation import Preparation, prepare
from rekindle.extensions.verdicts import Card
from rekindle.findings import Finding, Fix, State, worst
from rekindle.knowledge.capability import Coverage
from rekindle.knowledge.releases import parse_arch_list
from rekindle.machine.model import Machine
from rekindle.run import Result, call, checked
from rekindle.wheels.inspection import Inspection, inspect

Teller = Callable[[str], None]
_TIME = 3 * 3600.0
_LEFT_BEHIND = ("build", "dist", "*.egg-info", ".git")
# Compiling one file of a torch extension takes about this much memory; cicc on a large template takes more.
_PER_JOB = 3 << 30


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


def ready(
    place: Path | None, cards: Sequence[Card], machine: Machine, *, temp: str
) -> tuple[Environment, str, Preparation]:
    """The environment, its torch, and what a build in it would use."""
    environment = open_environment(place)
    torch = installed_torch(environment)
    if torch is None:
        message = f"there is no torch in `{environment.root}`"
        raise NotFound(message, hint="an extension is built for one torch: install that first with `rekindle install`")
    found = prepare(environment, torch.version, torch.cuda, cards, machine, temp=temp, jobs=_jobs(machine))
    return environment, torch.version, found


class ShellEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle extension env`."""

    schema: str = "rekindle.extension-env/1"
    shell: str
    arch_list: str
    changes: tuple[Change, ...]
    text: str


def check(place: Path | None, *, cards: Sequence[Card], machine: Machine) -> ExtensionReport:
    """Would a CUDA extension build here, with what, and for which cards? Nothing is built."""
    environment, torch, found = ready(place, cards, machine, temp=tempfile.gettempdir())
    return _Report("pre-flight", environment, torch, found).of(wheel=None, built=False)


def shell_environment(
    place: Path | None, *, cards: Sequence[Card], machine: Machine, shell: str | None
) -> ShellEnvironment:
    """The environment as lines for a shell; an error that says what is missing when there is none."""
    _, _, found = ready(place, cards, machine, temp=tempfile.gettempdir())
    if found.environment is None:
        wrong = next(finding for finding in found.findings if finding.state is State.FAIL)
        raise MissingTool(wrong.found, hint=wrong.fix.text if wrong.fix else "`rekindle extension check` says more")
    chosen = shell or ("cmd" if machine.os == "windows" else "sh")
    text = render(found.environment, chosen)
    return ShellEnvironment(shell=chosen, arch_list=found.arch_list, changes=found.environment.changes, text=text)


def build(
    project: str,
    place: Path | None,
    *,
    cards: Sequence[Card],
    machine: Machine,
    output: Path,
    from_source: bool = False,
    tell: Teller = lambda _: None,
) -> ExtensionReport:
    """A wheel of `project` (a folder or a requirement) that serves the cards: found on the index, else built here."""
    with tempfile.TemporaryDirectory(prefix="rekindle-ext-") as folder:
        work = Path(folder)
        environment, torch, found = ready(place, cards, machine, temp=str(work))
        report = _Report(project, environment, torch, found)
        is_folder = Path(project).is_dir()
        if not is_folder and not re.match(r"[A-Za-z0-9][\w.-]*(\[[\w,]+\])?\s*([<>=!~]=?.*)?\Z", project):
            message = f"`{project[:80]}` is neither a folder nor a requirement"
            raise UsageError(message, hint="give the folder of the project, or a name like `torchvision==0.22.1`")
        if not is_folder and not from_source:
            ready_made = _on_the_index(project, environment, cards, work, tell)
            if ready_made and ready_made[1].state is State.PASS:
                wheel = _kept(ready_made[0], output)
                return report.of(wheel=wheel, built=False, more=[ready_made[1]], targets=inspect(wheel).targets)
            report.findings += [ready_made[1]] if ready_made else []
        if found.environment is None or found.request is None:
            return report.of(wheel=None, built=False)
        tell(f"building {project} for {found.arch_list} with CUDA in {found.toolkit}")
        wheel, log = _built(project, environment, found, work, output)
        return report.of(wheel=wheel, built=True, more=_judged(wheel, found, cards, environment, work), log=log)


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
        )


def _jobs(machine: Machine) -> int:
    memory = machine.memory.available or machine.memory.usable or _PER_JOB
    return max(1, min(machine.processor.cores or 1, memory // _PER_JOB))


def _on_the_index(
    requirement: str, environment: Environment, cards: Sequence[Card], work: Path, tell: Teller
) -> tuple[Path, Finding] | None:
    """A wheel for this Python, if there is one, and whether it serves the cards."""
    folder = work / "index"
    folder.mkdir()
    words = ["download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder), requirement]
    result = _pip(environment, words, os.environ, timeout=1800)
    wheel = next(iter(folder.glob("*.whl")), None)
    if not result.ok or wheel is None:
        tell(f"no wheel of {requirement} for this Python on the index: pip would build it from source")
        return None
    seen = inspect(wheel, cards=[card.capability.sm for card in cards])
    wrong = [card.name for card in seen.cards if card.coverage is not Coverage.SERVES]
    if not seen.targets:
        found = Finding(id="extension.index", state=State.WARN, found=f"{wheel.name} on the index has no GPU code")
    elif wrong:
        text = f"{wheel.name} on the index does not serve {', '.join(wrong)}: it has {', '.join(seen.targets)}"
        found = Finding(id="extension.index", state=State.WARN, found=text)
    else:
        found = Finding(id="extension.index", state=State.PASS, found=f"{wheel.name} on the index serves the cards")
    tell(found.found)
    return wheel, found


def _built(project: str, environment: Environment, found: Preparation, work: Path, output: Path) -> tuple[Path, Path]:
    assert found.environment is not None
    assert found.request is not None
    environ = found.environment.over(os.environ)
    source = str(Path(project).resolve()) if Path(project).is_dir() else project
    if Path(project).is_dir():
        # A copy: an earlier build's objects for other cards would be taken for this one's.
        source = str(shutil.copytree(project, work / "source", ignore=shutil.ignore_patterns(*_LEFT_BEHIND)))
    requirements = _build_requirements(Path(source)) if Path(project).is_dir() else ["setuptools", "wheel", "ninja"]
    environ = _with_requirements(environment, requirements, environ, work)
    wheels = work / "wheels"
    words = ["wheel", "-v", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", str(wheels), source]
    if not Path(project).is_dir():
        words.insert(1, "--no-binary=:all:")
    result = _pip(environment, words, environ, timeout=_TIME)
    log = output / "extension-build.log"
    files.write_text(log, result.out + result.err)
    wheel = next(iter(wheels.glob("*.whl")), None)
    if not result.ok or wheel is None:
        raise _failure(project, log, found.request)
    return _kept(wheel, output), log


def _failure(project: str, log: Path, request: BuildRequest) -> StepFailed:
    from rekindle.diagnose.diagnosis import diagnose_file

    diagnosis = diagnose_file(log)
    message = f"`{project}` could not be built"
    if diagnosis.causes:
        cause = diagnosis.causes[0]
        message += f"\n{cause.label}: {cause.explanation}"
        return StepFailed(message, hint=f"{cause.fix.text}; the whole log is in `{log}`")
    return StepFailed(message, hint=f"`rekindle diagnose {log}`")


def _judged(
    wheel: Path, found: Preparation, cards: Sequence[Card], environment: Environment, work: Path
) -> list[Finding]:
    """Right code, and nothing else; importable where it was made."""
    seen = inspect(wheel, cards=[card.capability.sm for card in cards])
    return [_right_code(seen, found), *_served(seen), _importable(wheel, environment, work)]


def _right_code(seen: Inspection, found: Preparation) -> Finding:
    wanted = {str(target) for target in parse_arch_list(found.arch_list)}
    got = set(seen.targets)
    if not got:
        text = "the wheel holds no GPU code: the project has none, or its build skipped it"
        return Finding(id="extension.code", state=State.WARN, found=text)
    if got != wanted:
        return Finding(
            id="extension.code",
            state=State.WARN,
            found=f"the wheel holds {', '.join(sorted(got))}; asked for was {', '.join(sorted(wanted))}",
            why="the project sets architectures of its own",
        )
    found_targets = ", ".join(seen.targets)
    return Finding(id="extension.code", state=State.PASS, found=f"the wheel holds {found_targets} and nothing else")


def _served(seen: Inspection) -> list[Finding]:
    return [
        Finding(
            id="extension.serves",
            state=State.PASS if card.coverage is Coverage.SERVES else State.FAIL,
            found=f"{card.name}: {card.coverage.value}" + (" by JIT" if card.by_jit else ""),
        )
        for card in seen.cards
        if seen.targets
    ]


def _importable(wheel: Path, environment: Environment, work: Path) -> Finding:
    folder = work / "imported"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    names = sorted(path.name for path in folder.iterdir() if (path / "__init__.py").is_file())
    if not names or environment.interpreter is None:
        return Finding(id="extension.import", state=State.UNVERIFIED, found="the wheel has no package to import")
    script = f"import sys; sys.path.insert(0, {str(folder)!r}); import {names[0]}"
    result = call([environment.interpreter, "-c", script], timeout=300)
    if result.ok:
        return Finding(id="extension.import", state=State.PASS, found=f"`import {names[0]}` works with the torch here")
    said = (result.err.strip().splitlines() or ["no answer"])[-1]
    return Finding(
        id="extension.import",
        state=State.FAIL,
        found=f"`import {names[0]}` fails: {said[:200]}",
        fix=Fix(text="`rekindle diagnose` reads the whole message"),
    )


def _build_requirements(source: Path) -> list[str]:
    """What the project needs to be built, without torch, which is there."""
    file = source / "pyproject.toml"
    needed = ["setuptools", "wheel"]
    if file.is_file():
        table = msgspec.toml.decode(file.read_bytes()).get("build-system", {})
        needed = [str(entry) for entry in table.get("requires", needed)]
    kept = [entry for entry in needed if not re.match(r"(?i)torch(?![\w-])", entry)]
    return [*kept, "ninja"]


def _with_requirements(
    environment: Environment, needed: list[str], environ: dict[str, str], work: Path
) -> dict[str, str]:
    """What is not there yet goes into a folder of its own: the user's environment stays as it is."""
    missing = [text for text in needed if not _satisfied(text, environment, environ)]
    if not missing:
        return environ
    folder = work / "requirements"
    result = _pip(environment, ["install", "-q", "--target", str(folder), *missing], environ, timeout=1800)
    checked(result, doing="install the build requirements", hint="check the network, or install them by hand")
    path = os.pathsep.join([str(folder / "bin"), environ.get("PATH", "")])
    return {**environ, "PYTHONPATH": str(folder), "PATH": path}


def _satisfied(text: str, environment: Environment, environ: Mapping[str, str]) -> bool:
    """Is this requirement met in the environment? A ninja anywhere on PATH is as good as the package's."""
    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    if requirement.name == "ninja" and shutil.which("ninja", path=environ.get("PATH", "")):
        return True
    for folder in environment.site_packages:
        for info in Path(folder).glob("*.dist-info"):
            name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
            if canonicalize_name(name) == canonicalize_name(requirement.name):
                return requirement.specifier.contains(version, prereleases=True)
    return False


def _pip(environment: Environment, words: Sequence[str], environ: Mapping[str, str], *, timeout: float) -> Result:
    assert environment.interpreter is not None
    command = [environment.interpreter, "-m", "pip", "--disable-pip-version-check", *words]
    return call(command, env=environ, timeout=timeout)


def _kept(wheel: Path, output: Path) -> Path:
    target = output / wheel.name
    with wheel.open("rb") as made, files.replacing(target) as stream:
        shutil.copyfileobj(made, stream)
    return target
