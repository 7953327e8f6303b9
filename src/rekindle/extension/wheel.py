"""Builds the wheel of an extension: its source, what its build needs, pip, the log, and the cause when it fails."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rekindle.build.governor.gate import make_or_do_without
from rekindle.build.governor.governor import summary
from rekindle.build.governor.server import Governor
from rekindle.build.run import fixes, program
from rekindle.build.run.journal import Journal
from rekindle.compat.feature_card import has
from rekindle.core import codec, files, python, untrusted
from rekindle.core.command import rekindle
from rekindle.core.errors import BadInput, StepFailed
from rekindle.core.processes import which
from rekindle.core.run import call, checked
from rekindle.diagnose import report
from rekindle.diagnose.answer import Diagnosis
from rekindle.extension.prepare import Preparation
from rekindle.machine.python.interpreters import DISTRIBUTION_FOLDER
from rekindle.model.environment import Environment

LOG = "extension-build.log"
_FETCHING = 1800.0
_LEFT_BEHIND = ("build", "dist", "*.egg-info", ".git", "__pycache__", "*.so", "*.pyd", "*.o", "*.obj")
# What a line of ninja or of setuptools looks like: `[3/12] nvcc …`.
_STEP = re.compile(r"(?:\S+ )?\[(\d+)/(\d+)\] ")


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
    with program.stoppable(), _governed(found, environ, work, tell) as governed:
        outcome = program.run(
            python.pip(found.builder, *words),
            program.StepLog(step="the extension", log=log, journal=Journal(work / "journal.jsonl")),
            env=governed,
            cwd=work,
            observe=_progress(tell),
        )
    wheel = next(iter(wheels.glob("*.whl")), None)
    if not outcome.ok or wheel is None:
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
    gate = make_or_do_without(work, request, environ) if request and kit and request.system == "linux" else None
    if gate is None or kit is None:
        yield environ
        return
    wrapper = work / "gated" / "nvcc"
    command = [*gate.words, kit.nvcc]
    files.write_text(wrapper, f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
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
        return StepFailed(f"{message}\n\n{report.text(diagnosis)}", hint=f"the whole log is in `{log}`{elsewhere}")
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
    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    if requirement.name == "ninja" and which("ninja", environ.get("PATH", "")):
        return True
    for folder in environment.site_packages:
        for path in Path(folder).glob("*-info"):
            info = DISTRIBUTION_FOLDER.fullmatch(path.name)
            if info and canonicalize_name(info[1]) == canonicalize_name(requirement.name):
                return requirement.specifier.contains(info[2], prereleases=True)
    return False
