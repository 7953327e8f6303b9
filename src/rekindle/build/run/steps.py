"""The steps of a build, in order. Each says what it depends on (its fingerprint) and does one thing.

A step that only looks (`looks`) makes nothing that a later step could be out of date with.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.configure import backends, preflight, tree
from rekindle.build.configure import tools as smoke
from rekindle.build.configure.compiler_cache import CacheUse
from rekindle.build.configure.compiler_cache import use as cache_use
from rekindle.build.configure.environment import BuildEnvironment
from rekindle.build.configure.options import Choices, Options
from rekindle.build.configure.request import BuildRequest
from rekindle.build.configure.tools import Tools
from rekindle.build.governor import governor as governors
from rekindle.build.governor.record import GovernorUse
from rekindle.build.governor.server import Governor
from rekindle.build.progress import outputs, weights
from rekindle.build.progress.watch import CompileStep, Progress
from rekindle.build.run import journal as program
from rekindle.build.run.folders import Folders, folder_of, source_of
from rekindle.build.run.journal import THERE, Journal, fingerprint, output
from rekindle.core import codec, files
from rekindle.core.errors import ChecksFailed, RekindleError, StepFailed
from rekindle.core.findings import Finding, State, worst
from rekindle.core.paths import shelf_folder, venv_python
from rekindle.diagnose.answer import Diagnosis
from rekindle.source import checkout
from rekindle.wheels.repair import repair
from rekindle.wheels.repair.repair import Repair
from rekindle.wheels.shelf import shelf
from rekindle.wheels.shelf.provenance import BuildFacts
from rekindle.wheels.verify import signed_report, verify
from rekindle.wheels.verify.verify import Verification


def repaired(request: BuildRequest, wheel: Path, into: Path, tools: Path | None = None) -> Repair:
    folders = map(Path, request.library_folders(str(tools or "")))
    wish = repair.RepairWish(folders=tuple(each for each in folders if each.is_dir()), cards=request.cards)
    return repair.repair(wheel, into, wish=wish)


def verified(request: BuildRequest, wheel: Path) -> Verification:
    """Only a torch is imported and run; of another project the file, its links and its GPU code are looked at.

    The report is written beside the wheel and travels with it.
    """
    cuda = str(built.major_minor) if (built := request.own_cuda) else None
    expected = verify.Expected(torch=request.torch, cuda=cuda, cards=request.cards)
    done = verify.verify(wheel, expected=expected, python=request.python, run=request.torch is not None)
    signed_report.write(verify.report_beside(wheel), done)
    return done


def shelved(request: BuildRequest, wheel: Path, applied: Mapping[str, str] | None = None) -> Path:
    """The shelf that it now lies on, with a statement of how it was built. An older build of the name is kept aside."""
    folder = shelf_folder()
    shelf.add(folder, [wheel], shelf.Addition(replace=True, labels=False, build=facts_of(request, applied)))
    return folder


def facts_of(request: BuildRequest, applied: Mapping[str, str] | None = None) -> BuildFacts:
    """How it was built, without a name of a person, a host or a folder."""
    tools = {
        "compiler": f"{request.compiler.kind} {request.compiler.version or ''}".strip(),
        "toolset": str(request.compiler.toolset or ""),
        "cmake": str(request.cmake_version or ""),
        "python": str(request.python_version or ""),
        "cuda": str(request.cuda.version) if request.cuda else "",
        "cudnn": str(request.cudnn.version or "") if request.cudnn else "",
        "system": f"{request.system} {request.arch}",
    }
    return BuildFacts(
        parameters={
            "project": request.name,
            "torch": request.torch,
            "arch_list": request.arch_list,
            "profile": request.profile,
            "options": dict(request.options),
            **({"base": Path(request.base.wheel).name, "base_sha256": request.base.sha256} if request.base else {}),
        },
        tools={name: text for name, text in tools.items() if text},
        sources={"git+https://github.com/pytorch/pytorch": request.commit} if request.commit and request.torch else {},
        patches=dict(applied or {}),
    )


def plain(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Findings of other rooms as the build reports them: what is numbered there is a plain finding here."""
    return tuple(codec.like(Finding, each) for each in findings)


class Context(msgspec.Struct, kw_only=True):
    """What the steps of one run share."""

    request: BuildRequest
    options: Options
    environment: BuildEnvironment
    environ: dict[str, str]
    tools: Tools
    folders: Folders
    backend: backends.Backend
    journal: Journal
    version: str
    choices: Choices
    """With the number of jobs that a fix on the way has put in force."""
    sources: tree.Manifest
    progress: Progress | None = None
    log: Path | None = None
    note: str | None = None
    """What the running step wants to have written down."""
    findings: list[Finding] = []
    cache: CacheUse | None = None
    tell: Callable[[str], None] = lambda text: None
    gated: bool = False
    """The gate stands before every compiler."""
    governed: GovernorUse | None = None
    step: str | None = None
    diagnosis: Diagnosis | None = None
    """Of the step that failed, where its log shows a cause."""

    @property
    def source(self) -> Path:
        return self.folders.source if self.backend.copies else source_of(self.request)

    @property
    def build(self) -> Path:
        return self.backend.build_folder(self.folders)

    @property
    def python(self) -> str:
        own = self.request.requirements
        return str(venv_python(self.folders.tools)) if own else self.request.python

    @property
    def compiles_at_once(self) -> int:
        """At most; with tokens the governor may allow fewer."""
        jobs, ceiling = self.choices.jobs, self.choices.ceiling
        return (ceiling or jobs if self.tokens else jobs) or os.cpu_count() or 1

    @property
    def tokens(self) -> bool:
        """Ninja takes its number from job tokens. Without a gate nobody would hold back those it has too many of."""
        return self.gated and governors.takes_tokens(self.tools.ninja)

    @property
    def job(self) -> backends.BackendJob:
        return backends.BackendJob(
            request=self.request,
            options=self.options,
            tools=self.tools,
            source=str(self.source),
            build=str(self.build),
            stage=str(self.folders.stage),
            python=self.python,
            version=self.version,
            jobs=self.choices.jobs,
        )


class BuildStep(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    inputs: Callable[[Context], Any]
    run: Callable[[Context], dict[str, str]]
    """Gives what it made, path and mark: it must be there for the step to count as done."""
    after: str | None = None
    """The step whose result this one builds on."""
    looks: bool = False
    always: bool = False


def run_preflight(context: Context) -> dict[str, str]:
    found = (
        *preflight.preflight(context.request, context.tools, context.folders, context.options),
        *preflight.findings(context.request, context.options, source_of(context.request)),
    )
    if context.choices.force:
        context.findings += found
    else:
        _stop_at(found, context, "the machine does not fit the plan")
    return {}


_COPIED = "source.json"


def copied_before(folders: Folders) -> tree.Manifest:
    """What the last copy of the source was made of."""
    kept = folders.root / _COPIED
    return codec.from_json(kept.read_bytes(), tree.Manifest) if kept.exists() else {}


def run_source(context: Context) -> dict[str, str]:
    if not context.backend.copies:
        return {str(context.source): THERE}
    before = copied_before(context.folders)
    tree.copy(source_of(context.request), context.folders.source, context.sources, before)
    checkout.forget_left_out(context.folders.source)
    files.write_text(context.folders.root / _COPIED, codec.to_json(context.sources, indent=0))
    return {str(context.folders.source): THERE}


def run_patch(context: Context) -> dict[str, str]:
    if context.backend.copies:
        done = [each for each in context.journal.entries if each.event == "done" and each.step == "patch" and each.note]
        before = tuple((done[-1].note or "").split()) if done else ()
        tree.bring_patches(context.source, context.request, context.tools, before)
        context.note = " ".join(tree.wanted_patches(context.request, context.tools))
    return {}


def run_smoke(context: Context) -> dict[str, str]:
    context.folders.smoke.mkdir(parents=True, exist_ok=True)
    found = smoke.smoke_test(context.request, context.folders.smoke, context.environ, gpu=context.choices.gpu)
    _stop_at(found, context, "the compiler and the toolkit do not work together")
    return {}


def run_configure(context: Context) -> dict[str, str]:
    # A configure run that was cut off may have cached the answer of a compiler that was killed. Start it afresh;
    # objects stay, and ninja's own log knows which of them are whole.
    (context.build / "CMakeCache.txt").unlink(missing_ok=True)
    if (context.build / "CMakeFiles").is_dir() and not context.journal.ever_done("configure"):
        shutil.rmtree(context.build / "CMakeFiles")
    context.build.mkdir(parents=True, exist_ok=True)
    _carry_out(context, "configure", context.backend.configure(context.job))
    return {str(path): THERE for path in context.backend.configured(context.build)}


def run_check(context: Context) -> dict[str, str]:
    _check(context, _log_text(context, "configure"))
    return {}


def run_compile(context: Context) -> dict[str, str]:
    before = cache_use(context.choices.launcher, context.environ) if context.choices.launcher else None
    if context.progress:
        context.progress.compiling(_compiles(context))
    try:
        _compile(context)
    finally:
        after = cache_use(context.choices.launcher, context.environ) if context.choices.launcher else None
        context.cache = after.since(before) if before and after else None
        if context.cache and context.cache.rate is not None:
            context.journal.write("cache", step="compile", note=codec.to_json(context.cache, indent=0))
        # What came out of a cache says nothing about how long a file takes.
        if not (context.cache and context.cache.hits):
            weights.keep(context.build / ".ninja_log", folder_of(context.request).name, context.folders.compiles)
    return {}


def run_package(context: Context) -> dict[str, str]:
    staging = context.folders.root / "p"
    for folder in (staging, context.folders.stage):
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
    _carry_out(context, "package", context.backend.package(context.job, staging))
    if context.backend.configures_again:
        # Its talk is pip's to keep; the cache that it has rewritten tells.
        _check(context, "")
    made = context.backend.collect(context.job, staging)
    wheel = context.folders.wheels / made.name
    made.replace(wheel)
    shutil.rmtree(staging)
    return {str(wheel): output(str(wheel)) or THERE}


def run_repair(context: Context) -> dict[str, str]:
    wheel = _made_by(context, "package")
    into = context.folders.root / "repaired"
    if into.exists():
        shutil.rmtree(into)
    done = repaired(context.request, wheel, into, context.folders.tools)
    _stop_at(plain(done.findings), context, "the wheel lacks libraries that could not be brought")
    path = str(into / wheel.name)
    return {path: output(path) or THERE}


def run_verify(context: Context) -> dict[str, str]:
    wheel = _made_by(context, "repair")
    done = verified(context.request, wheel)
    _stop_at(plain(done.checks), context, "the wheel failed its verification")
    return {str(verify.report_beside(wheel)): THERE}


def run_shelve(context: Context) -> dict[str, str]:
    applied = tree.wanted_patches(context.request, context.tools)
    return {str(shelved(context.request, _made_by(context, "repair"), applied)): THERE}


STEPS: tuple[BuildStep, ...] = (
    BuildStep(name="preflight", inputs=lambda c: None, run=run_preflight, looks=True, always=True),
    BuildStep(
        name="source",
        inputs=lambda c: [
            c.backend.copies,
            c.request.requirements,
            c.request.python,
            tree.manifest_fingerprint(c.sources),
        ],
        run=run_source,
    ),
    BuildStep(name="patch", after="source", inputs=lambda c: tree.wanted_patches(c.request, c.tools), run=run_patch),
    BuildStep(
        name="smoke",
        inputs=lambda c: [c.tools, c.request.arch_list, c.request.compiler, c.choices.gpu],
        run=run_smoke,
        looks=True,
    ),
    BuildStep(
        name="configure",
        after="patch",
        inputs=lambda c: [
            c.tools,
            c.options.resolved,
            c.environment.digest_text(),
            c.request.arch_list,
            c.backend.name,
            c.request.base.sha256 if c.request.base else None,
        ],
        run=run_configure,
    ),
    BuildStep(name="check", after="configure", inputs=lambda c: c.request, run=run_check, looks=True),
    BuildStep(name="compile", after="configure", inputs=lambda c: c.request.targets, run=run_compile),
    BuildStep(name="package", after="compile", inputs=lambda c: c.version, run=run_package),
    BuildStep(name="repair", after="package", inputs=lambda c: [c.request.cuda, c.request.cudnn], run=run_repair),
    BuildStep(
        name="verify", after="repair", inputs=lambda c: [c.request.torch, c.choices.gpu], run=run_verify, looks=True
    ),
    BuildStep(name="shelve", after="repair", inputs=lambda c: str(shelf_folder()), run=run_shelve),
)


def fingerprints(context: Context) -> dict[str, str]:
    """What every step would be done with today. A step's own holds that of the step it builds on."""
    found: dict[str, str] = {}
    for step in STEPS:
        inputs = codec.to_builtins(step.inputs(context))
        found[step.name] = fingerprint(step.name, found.get(step.after or "", ""), inputs)
    return found


def _compile(context: Context) -> None:
    """Ninja, with a governor that gives it job tokens and holds compilers back while memory is short."""
    jobs, tokens = context.compiles_at_once, context.tokens
    if not tokens:
        why = governors.no_tokens(context.tools.ninja) if context.gated else "the gate could not be made"
        context.tell(f"{why}: {jobs} compiles at a time")
    job = msgspec.structs.replace(context.job, jobs=None if tokens else jobs)
    governor = None
    try:
        with governors.governed(
            context.request,
            context.folders,
            jobs=jobs,
            tokens=tokens,
            cache=context.choices.launcher,
            tell=context.tell,
        ) as governor:
            if context.progress and context.gated:
                context.progress.standing = governor.standing
            _ninja(context, job, governor)
    finally:
        if context.progress:
            context.progress.standing = None
        if governor and context.gated:
            context.governed = governor.use
            context.journal.write("governor", step="compile", note=codec.to_json(governor.use, indent=0))


def _ninja(context: Context, job: backends.BackendJob, governor: Governor) -> None:
    environ = governor.environment(context.environ)
    try:
        _carry_out(context, "compile", context.backend.compile(job), environ=environ)
    except StepFailed:
        if not governor.use.unfit:
            raise
        # It does not fit, and trying again would not change that. What does not depend on it is finished.
        rest = msgspec.structs.replace(job, keep_going=True)
        with contextlib.suppress(StepFailed):
            _carry_out(context, "compile", context.backend.compile(rest), environ=environ)
        message = "; ".join(each.removeprefix("rekindle: ") for each in governor.use.unfit)
        hint = "give it more memory (the container's limit, a page file, other programs closed)"
        raise StepFailed(message, hint=f"{hint}; everything else is compiled, rerun the command to resume") from None


def _check(context: Context, log: str) -> None:
    found = context.backend.check(context.job, log)
    _stop_at(found, context, "what was configured is not what the plan says")


def _compiles(context: Context) -> CompileStep:
    return CompileStep(
        ninja=context.tools.ninja.path,
        build=context.build,
        source=context.source,
        targets=context.backend.targets(context.job),
        environ=context.environ,
        jobs=context.compiles_at_once,
        name=folder_of(context.request).name,
        compiles=context.folders.compiles,
    )


def _made_by(context: Context, step: str) -> Path:
    """What that step made, by the journal's word."""
    entry = context.journal.last_entry(step)
    if entry is None or entry.event != "done" or not entry.outputs:
        raise StepFailed(f"there is no wheel of the step `{step}`", hint=f"do it again with `--from {step}`")
    return Path(next(iter(entry.outputs)))


def _carry_out(context: Context, step: str, commands: Any, *, environ: Mapping[str, str] | None = None) -> None:
    assert context.log is not None
    record = program.StepLog(step=step, log=context.log, journal=context.journal)
    for command in commands:
        code = program.run_program(
            command.args,
            record,
            env={**(context.environ if environ is None else environ), "NINJA_STATUS": outputs.STATUS},
            cwd=Path(command.cwd),
            observe=context.progress.line if context.progress else None,
            started=context.progress.started if context.progress else None,
        )
        if code:
            name = Path(command.args[0]).name
            how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
            message = f"{step}: `{name}` {how}"
            raise StepFailed(message, hint=f"see `{context.log}`; rerun the command to resume from this step")


def _stop_at(found: tuple[Finding, ...], context: Context, message: str) -> None:
    context.findings += found
    if worst(found) is State.FAIL:
        bad = "; ".join(finding.found for finding in found if finding.state is State.FAIL)
        fixes = [finding.fix.text for finding in found if finding.state is State.FAIL and finding.fix]
        raise ChecksFailed(f"{message}: {bad}", hint=fixes[0] if fixes else "change the plan, then rerun the command")


def _log_text(context: Context, step: str) -> str:
    import gzip

    for path in sorted(context.folders.logs.glob(f"*-{step}.log*"), reverse=True):
        try:
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        except OSError as error:
            raise RekindleError(f"cannot read `{path}`: {error}") from error
        return data.decode("utf-8", "replace")
    return ""
