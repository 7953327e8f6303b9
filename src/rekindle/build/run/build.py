"""One run of a build: the lock, the orphans of an earlier run, then step after step, each journalled."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.build import backend_choice
from rekindle.build.configure import options, tools, tree
from rekindle.build.configure.compiler_cache import CacheUse, start, through
from rekindle.build.configure.environment import MARK, BuildEnvironment, BuildPlaces, compute
from rekindle.build.configure.options import Choices
from rekindle.build.configure.request import BuildRequest
from rekindle.build.governor.governor import make_gate
from rekindle.build.governor.record import GovernorUse
from rekindle.build.overview import Overview
from rekindle.build.progress.watch import Progress
from rekindle.build.run import journal as program
from rekindle.build.run import own_python, steps
from rekindle.build.run.fixes import Consent, Fixer, Force, diagnose_log
from rekindle.build.run.folders import (
    Folders,
    Tidied,
    clean,
    folder_of,
    held,
    source_of,
    wheel_version,
    without_spaces,
)
from rekindle.build.run.journal import Journal, Remedy
from rekindle.core.errors import Interrupted, Locked, RekindleError, StepFailed, UsageError
from rekindle.core.findings import Finding, State
from rekindle.machine.toolchain import msvc
from rekindle.machine.toolchain.msvc import VcVars


def end_orphans(journal: Journal, mark: str) -> tuple[int, ...]:
    """End what an earlier run left running; the process numbers that were ended.

    Windows has ended them already (the Job Object closes with its holder). On Linux the group lives on. A process is
    ours when it is in the group that the journal names and carries this build's mark in its environment: a number that
    another program has got since is never touched.
    """
    ended: list[int] = []
    for entry in journal.left_running():
        if entry.pid is None:
            continue
        members = _members(entry.pid, mark)
        if members:
            left = _end(entry.pid, mark, program.GRACE)
            if left:
                message = f"an earlier build left processes that cannot be ended: {', '.join(map(str, left))}"
                raise Locked(message, hint="end them, then rerun the command")
            ended += members
        journal.write("ended", step=entry.step, pid=entry.pid, note="found after a crash")
    if ended:
        journal.write("orphans", note=" ".join(map(str, ended)))
    return tuple(ended)


def _members(group: int, mark: str) -> list[int]:
    """The processes of the group that carry the mark."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if _group(process.pid) != group:
                continue
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process.pid)
    return found


def _group(pid: int) -> int:
    """Windows has no groups: there the process is its own."""
    own = pid
    if sys.platform != "win32":
        own = os.getpgid(pid)
    return own


def _end(group: int, mark: str, grace: float) -> list[int]:
    """Those that would not end. One that is dying shows no environment any more: it is watched by its number."""
    import psutil

    watched: set[int] = set()
    for kind in ("terminate", "kill"):
        watched |= set(_members(group, mark))
        if sys.platform == "win32":
            for pid in _members(group, mark):
                with contextlib.suppress(psutil.Error):
                    getattr(psutil.Process(pid), kind)()
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGTERM if kind == "terminate" else signal.SIGKILL)
        limit = time.monotonic() + grace
        while time.monotonic() < limit:
            watched |= set(_members(group, mark))
            watched = {pid for pid in watched if _alive(pid)}
            if not watched:
                return []
            time.sleep(0.05)
    return sorted(watched)


def _alive(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


Teller = Callable[[str], None]


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is `done`, `kept` (still valid from an earlier run), `failed` or `left` (not asked for)."""

    name: str
    state: str
    seconds: float | None = None
    log: str | None = None


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.build/1"
    folder: str
    wheel: str | None
    version: str
    steps: tuple[StepReport, ...]
    findings: tuple[Finding, ...] = ()
    orphans: tuple[int, ...] = ()
    cache: CacheUse | None = None
    """What sccache or ccache did for the compiles of this run."""
    governor: GovernorUse | None = None
    """What the compiles of this run took, and which had to wait for memory."""
    fixes: tuple[Remedy, ...] = ()
    """What was fixed on the way, in this run."""
    overview: Overview | None = None
    tidied: Tidied | None = None
    """What `--tidy` gave back."""
    record: str | None = None
    """The Markdown record of this build."""


def build(
    request: BuildRequest,
    choices: Choices | None = None,
    *,
    tell: Teller = lambda text: None,
    progress: Progress | None = None,
    consent: Consent | None = None,
) -> BuildReport:
    """Take the request to a wheel, or go on where an earlier run stopped.

    `consent` is asked before a fix is made on the way; without it, and without `auto_fix`, none is made.
    """
    choices = choices or Choices()
    names = [step.name for step in steps.STEPS]
    for asked in (choices.until, choices.start):
        if asked is not None and asked not in names:
            raise UsageError(f"unknown step `{asked}`", hint="the steps are " + ", ".join(names))
    root = Path(choices.work) if choices.work else folder_of(request)
    root.mkdir(parents=True, exist_ok=True)
    folders = Folders(without_spaces(root))
    with held(folders):
        folders.make()
        if choices.clean:
            clean(folders, keep=(folders.lock, folders.running, folders.compiler_cache, folders.overview))
            folders.make()
        return _Run(request, folders, tell, progress).to_wheel(choices, consent)


def prepare(
    request: BuildRequest,
    choices: Choices,
    root: str,
    environ: Mapping[str, str],
    *,
    capture: bool = True,
    variables: Mapping[str, str] | None = None,
) -> tuple[options.Options, BuildEnvironment, dict[str, str], str]:
    """Options, environment and version of a build in the folder `root`: all that can be said without touching it."""
    chosen = options.resolve(request, choices.overrides, allow_unknown=choices.allow_unknown)
    version = wheel_version(request)
    environment = compute(
        request,
        chosen.resolved,
        places=BuildPlaces(
            temp=request.paths.join(root, "t"), tools=request.paths.join(root, "env"), git_ceiling=root, mark=root
        ),
        vcvars=captured(request, environ) if capture else None,
        launcher=choices.launcher,
        version=version,
    ).with_variables(variables or {}, "a fix made on the way")
    return chosen, environment, {**environment.over(environ), **choices.cache_place}, version


def captured(request: BuildRequest, environ: Mapping[str, str]) -> VcVars | None:
    """What `vcvarsall.bat` changes for this compiler; None where there is no such thing."""
    if os.name != "nt" or request.compiler.studio is None:
        return None
    toolset = str(request.compiler.toolset) if request.compiler.toolset else None
    return msvc.capture(request.compiler.studio, toolset=toolset, environ=environ)


class _Run:
    """What all attempts of one run share."""

    def __init__(self, request: BuildRequest, folders: Folders, tell: Teller, progress: Progress | None) -> None:
        self.request, self.folders, self.tell, self.progress = request, folders, tell, progress
        self.journal = Journal(folders.journal)
        self.source = source_of(request)

    def to_wheel(self, choices: Choices, consent: Consent | None) -> BuildReport:
        # A wrong option is told before anything is brought.
        options.resolve(self.request, choices.overrides, allow_unknown=choices.allow_unknown)
        self.journal.write("start", pid=os.getpid())
        ended = end_orphans(self.journal, str(self.folders.root))
        if ended:
            self.tell(f"ended {len(ended)} processes left by an earlier run ({', '.join(map(str, ended))})")
        self._bring_source()
        bundle = Path(choices.bundle) if choices.bundle else None
        own_python.make(self.request, self.folders, self.journal, bundle=bundle, tell=self.tell)
        fixer = Fixer(self.journal, choices, self.tell, consent)
        while True:
            context = self._context(fixer.choices, fixer.force)
            try:
                reports = _steps(context)
                break
            except StepFailed as error:
                if not fixer.fixed(context):
                    raise fixer.said(error) from error.__cause__
        made = [self.journal.last_entry(name) for name in ("repair", "package")]
        wheel = next((next(iter(last.outputs), None) for last in made if last and last.event == "done"), None)
        self.journal.write("finish")
        return BuildReport(
            folder=str(self.folders.root),
            wheel=wheel,
            version=context.version,
            steps=tuple(reports),
            findings=tuple(context.findings),
            orphans=ended,
            cache=context.cache,
            governor=context.governed,
            fixes=tuple(fixer.made),
        )

    def _bring_source(self) -> None:
        """PyTorch's own, when no folder was named and it is not there, or not whole."""
        if not self.request.source:
            from rekindle.source.request import SourceCommand, bring

            release, commit = str(self.request.release), self.request.commit
            bring(SourceCommand(torch=release, output=self.source, commit=commit), say=self.tell)

    def _context(self, choices: Choices, force: Force) -> steps.Context:
        """What the steps of one attempt share: the request, and what fixes on the way have put in force over it."""
        request, root = self.request, str(self.folders.root)
        if force.jobs:
            choices = msgspec.structs.replace(choices, jobs=force.jobs, ceiling=force.jobs)
        if force.patches:
            found = tools.find(request, prepare(request, choices, root, os.environ)[2])
            patches = dict.fromkeys((*tree.wanted_patches(request, found), *force.patches))
            request = msgspec.structs.replace(request, patches=tuple(patches))
        chosen, environment, computed, version = prepare(request, choices, root, os.environ, variables=force.variables)
        gate = make_gate(self.folders.root, request, computed)
        if gate:
            environment = through(environment, gate)
            computed = {**environment.over(os.environ), **choices.cache_place}
        if choices.launcher:
            start(choices.launcher, computed)
        return steps.Context(
            request=request,
            options=chosen,
            environment=environment,
            environ=computed,
            tools=tools.find(request, computed),
            folders=self.folders,
            backend=backend_choice.choose(request.backend, self.source),
            journal=self.journal,
            version=version,
            choices=choices,
            gated=gate is not None,
            tell=self.tell,
            sources=tree.manifest(self.source, steps.copied_before(self.folders)),
            progress=self.progress,
            findings=list(chosen.findings),
        )


def _steps(context: steps.Context) -> list[StepReport]:
    choices = context.choices
    prints = steps.fingerprints(context)
    reports: list[StepReport] = []
    forced = over = False
    redone: set[str] = set()
    for number, step in enumerate(steps.STEPS, 1):
        if over:
            reports.append(StepReport(name=step.name, state="left"))
            continue
        forced = forced or step.name == choices.start
        over = step.name == choices.until
        # What was made anew is looked at anew, and what stands on it is made anew, whatever its fingerprint says.
        again = forced or step.always or step.after in redone
        kept = None if again else context.journal.done(step.name, prints[step.name])
        if kept:
            context.tell(f"{step.name:<10} kept")
            reports.append(StepReport(name=step.name, state="kept", seconds=kept.seconds, log=kept.log))
            continue
        reports.append(_one(context, step, number, prints[step.name]))
        if not step.looks:
            redone.add(step.name)
    return reports


def _one(context: steps.Context, step: steps.BuildStep, number: int, print_: str) -> StepReport:
    journal, tell = context.journal, context.tell
    context.log = context.folders.logs / f"{number:02d}-{step.name}.log"
    for old in (context.log, context.log.with_name(context.log.name + ".gz")):
        old.unlink(missing_ok=True)
    seen = len(context.findings)
    begun = time.monotonic()
    context.note = None
    journal.write("begin", step=step.name, fingerprint=print_)
    try:
        if context.progress:
            context.progress.begin(step.name, number, len(steps.STEPS))
        try:
            made = step.run(context)
        finally:
            if context.progress:
                context.progress.end()
    except (Interrupted, KeyboardInterrupt):
        journal.write("interrupted", step=step.name, seconds=time.monotonic() - begun)
        raise
    except RekindleError as error:
        journal.write("failed", step=step.name, seconds=time.monotonic() - begun, note=error.message[:2000])
        tell(f"{step.name:<10} failed after {time.monotonic() - begun:.1f} s")
        context.step, context.diagnosis = step.name, None
        # What does not fit alone is known without its log, and fewer jobs would not help it.
        if isinstance(error, StepFailed) and not (context.governed and context.governed.unfit):
            _explain(context)
        raise
    seconds = round(time.monotonic() - begun, 3)
    log = str(program.compress_log(context.log)) if context.log.exists() else None
    journal.write("done", step=step.name, fingerprint=print_, seconds=seconds, outputs=made, log=log, note=context.note)
    tell(f"{step.name:<10} {seconds:7.1f} s")
    for line in _remarks(context.findings[seen:]):
        tell(f"{'':<10} {line}")
    return StepReport(name=step.name, state="done", seconds=seconds, log=log)


def _explain(context: steps.Context) -> None:
    """The diagnosis of the step's log, where there is one."""
    found = diagnose_log(context.log, context.request) if context.log else None
    context.diagnosis = found
    if found:
        from rekindle.diagnose import report

        for text in ("", report.text(found), ""):
            context.tell(text)


def _remarks(found: Sequence[Finding]) -> list[str]:
    """What is not PASS, one line for all that say the same."""
    alike: dict[tuple[State, str], list[str]] = {}
    for finding in found:
        if finding.state is not State.PASS:
            alike.setdefault((finding.state, finding.found), []).append(finding.id)
    return [
        f"{state.value}: {text}" + (f" ({len(names)} checks: {', '.join(names[:3])}, ...)" if len(names) > 3 else "")
        for (state, text), names in alike.items()
    ]
