"""What `rekindle build` does, between the command line and the build itself."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from rekindle.build import build_record, overview, provision
from rekindle.build.configure import compiler_cache, options, request, smoke, tools
from rekindle.build.configure.compiler_cache import find_launcher, remote
from rekindle.build.configure.options import Choices
from rekindle.build.configure.request import BuildFile, BuildRequest
from rekindle.build.governor import governor
from rekindle.build.progress import view
from rekindle.build.progress.view import Now
from rekindle.build.progress.watch import HEARTBEAT, Progress
from rekindle.build.run import build as whole
from rekindle.build.run import locked, steps, tidy
from rekindle.build.run.build import BuildReport, StepReport
from rekindle.build.run.fixes import Consent
from rekindle.build.run.folders import Folders, folder_of, wheel_version, without_spaces
from rekindle.core import codec, files
from rekindle.core.command import rekindle
from rekindle.core.errors import BadInput, Interrupted, RekindleError, UsageError
from rekindle.core.findings import Finding, State
from rekindle.machine.model import Machine

Ask = Callable[[str], bool]


class BuildCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed after `rekindle build`. `words` are the command itself, to be repeated in a hint."""

    plan: Path
    machine: Path | None = None
    dry_run: bool = False
    source: Path | None = None
    pairs: tuple[str, ...] = ()
    allow_unknown: bool = False
    until: str | None = None
    start: str | None = None
    clean: bool = False
    jobs: int | None = None
    work: Path | None = None
    bundle: Path | None = None
    no_cudnn: bool = False
    graft: Path | None = None
    launcher: str | None = None
    script: Path | None = None
    auto_fix: bool = False
    unlocked: bool = False
    force: bool = False
    yes: bool = False
    tidy: bool = False
    export_cache: Path | None = None
    import_cache: Path | None = None
    provision: bool = False
    accept_licence: bool = False
    words: tuple[str, ...] = ()

    @property
    def exchanges_cache(self) -> bool:
        return self.export_cache is not None or self.import_cache is not None


class BuildListener(Protocol):
    """Somebody who draws a build: told where it lies when it begins, of each moment, and how it ended."""

    def began(self, folder: Path, title: str) -> None: ...

    def now(self, moment: Now) -> None: ...

    def ended(self, outcome: str) -> None: ...


def build(command: BuildCommand, tell: Callable[[str], None], listener: BuildListener | None = None) -> BuildReport:
    """Read, resolve, show, ask, carry out."""
    seen = look(command.machine)
    if command.provision:
        seen = _provisioned(command, seen, tell)
    try:
        resolved = resolve(command, seen)
    except RekindleError as error:
        if not (command.provision and command.dry_run):
            raise
        # The tools are named above; the usual hint would be to add what was given.
        raise type(error)(error.message, hint="without `--dry-run` they are installed first") from error
    choices = _choices(command, resolved, seen)
    if command.machine is not None and not command.dry_run:
        raise UsageError("cannot build from a snapshot", hint="add `--dry-run` to see what would be done there")
    bundle = Path(choices.bundle) if choices.bundle else None
    # A source that is named is here, also where the machine is a recorded one.
    pinned = locked.check(resolved, bundle) if command.machine is None or command.source is not None else ()
    folders = Folders(without_spaces(Path(choices.work) if choices.work else folder_of(resolved)))
    here = command.machine is None
    if command.tidy:
        return _tidied(folders, resolved, dry_run=command.dry_run)
    shown = overview.overview(
        resolved,
        seen,
        folder=str(folders.root) if here else elsewhere_root(resolved),
        jobs=choices.jobs,
        here=here,
    )
    if command.dry_run:
        return _would(resolved, choices, shown, pinned)
    tell(overview.text(shown))
    for finding in pinned:
        if finding.state is not State.PASS:
            tell(f"{finding.state.value}: {finding.found}")
    if resolved.torch and not command.yes and not folders.journal.exists():
        _confirm(_question())
    listen = listener.now if listener else None
    progress = Progress(tell, live=view.terminal(), every=_heartbeat(), listen=listen)
    choices = _with_cache(command, resolved, choices, folders, tell)
    folders.root.mkdir(parents=True, exist_ok=True)
    files.write_text(folders.overview, codec.to_json(shown))
    if listener:
        listener.began(folders.root, f"{shown.what} for {', '.join(shown.architectures) or 'the CPU'}")
    written, outcome = None, "Stopped"
    try:
        made = whole.build(resolved, choices, tell=tell, progress=progress, consent=_consent())
        outcome = "Finished"
    except RekindleError as error:
        outcome = f"Stopped: {error.message}"
        raise
    finally:
        # Also of a build that failed: what went wrong is what others look for.
        with contextlib.suppress(RekindleError, OSError):
            written = str(build_record.write(folders, shown, wheel_version(resolved)))
        if listener:
            listener.ended(outcome)
    if command.export_cache is not None:
        own = _cache_identity(resolved, choices, folders)
        done = compiler_cache.export(command.export_cache, folders.root, own)
        tell(compiler_cache.describe_exchange("exported", done))
    return msgspec.structs.replace(made, overview=shown, record=written)


def _with_cache(
    command: BuildCommand, resolved: BuildRequest, choices: Choices, folders: Folders, tell: Callable[[str], None]
) -> Choices:
    """The same choices with a ccache of the build's own, filled from what another machine compiled."""
    if not command.exchanges_cache:
        return choices
    own = _cache_identity(resolved, choices, folders)
    if command.import_cache is not None:
        folders.root.mkdir(parents=True, exist_ok=True)
        done = compiler_cache.bring(command.import_cache, folders.root, own)
        tell(compiler_cache.describe_exchange("imported", done))
        tell("what others compiled cannot be checked: trust the file as you trust who made it")
    place = {**choices.cache_place, **compiler_cache.variables(folders.root)}
    return msgspec.structs.replace(choices, cache_place=place)


def _cache_identity(resolved: BuildRequest, choices: Choices, folders: Folders) -> compiler_cache.CacheIdentity:
    chosen = options.resolve(resolved, choices.overrides, allow_unknown=choices.allow_unknown)
    return compiler_cache.identity(resolved, chosen, folders.root, choices.launcher)


def _provisioned(command: BuildCommand, seen: Machine, tell: Callable[[str], None]) -> Machine:
    """The machine after what the build lacks was installed; with `--dry-run` only named."""
    if command.machine is not None:
        raise UsageError("cannot provision a snapshot", hint="run it on that machine")
    wanted = wanted_by(command)
    overrides = options.parse(command.pairs)
    if command.dry_run:
        for tool in provision.lacking(wanted, seen, overrides).tools:
            tell(f"would install {tool}")
        return seen
    done = provision.provision(
        wanted, seen, overrides, accept_licence=command.accept_licence, say=tell, ask=_question()
    )
    return look(None) if done else seen


def wanted_by(command: BuildCommand) -> BuildFile:
    """What the plan or build file asks for."""
    wanted = request.read(command.plan, unlocked=command.unlocked)
    return msgspec.structs.replace(wanted, cudnn=None) if command.no_cudnn else wanted


def resolve(command: BuildCommand, seen: Machine, *, elsewhere: bool = False) -> BuildRequest:
    """The request of this command on that machine. A source that another computer's plan names is there, not here."""
    wanted = wanted_by(command)
    if command.graft is not None:
        wanted = msgspec.structs.replace(wanted, base=str(wheel_in(command.graft)))
    if wanted.base is not None and command.pairs:
        message = "`-D` changes nothing in a graft: the base's options hold"
        raise UsageError(message, hint="leave it out, or build everything without `--graft`")
    if command.source is not None:
        source = command.source if elsewhere else command.source.resolve()
        wanted = msgspec.structs.replace(wanted, source=str(source))
    return request.resolve(wanted, seen, here=None if elsewhere else command.plan.resolve().parent)


def wheel_in(given: Path) -> Path:
    """The wheel, or the only torch wheel of a folder."""
    if not given.is_dir():
        return given.resolve()
    found = sorted(given.glob("torch-*.whl"))
    if len(found) != 1:
        raise BadInput(f"`{given}` has {len(found)} wheels of torch, not one", hint="name the official wheel itself")
    return found[0].resolve()


def look(snapshot: Path | None) -> Machine:
    if snapshot is not None:
        from rekindle.machine.snapshot import load

        return load(snapshot)
    from rekindle.machine.probe import look as probe

    return probe()


def again(words: Sequence[str]) -> str:
    """The same command once more, as it is typed, without what would throw away what is done."""
    kept = [
        word
        for before, word in zip(("", *words), words, strict=False)
        if word not in ("--clean", "--from", "--auto-fix") and before != "--from" and not word.startswith("--from=")
    ]
    return str(rekindle(*kept))


def _choices(command: BuildCommand, resolved: BuildRequest, seen: Machine) -> Choices:
    return codec.like(
        Choices,
        command,
        overrides=options.parse(command.pairs),
        jobs=command.jobs or tools.jobs_for(seen, cuda=resolved.cuda is not None),
        ceiling=command.jobs or seen.processor.cores,
        work=str(command.work.resolve()) if command.work else None,
        bundle=str(command.bundle.resolve()) if command.bundle else None,
        gpu=smoke.can_run(resolved.gpu_targets, (gpu.capability for gpu in seen.gpus)),
        launcher=find_launcher(command.launcher or ("ccache" if command.exchanges_cache else None), os.environ),
        cache_place=remote(command.launcher),
        again=again(command.words or ("build", str(command.plan))),
    )


def elsewhere_root(resolved: BuildRequest) -> str:
    """On another machine the cache's place is not known: a short one stands for it."""
    return "C:\\rk\\b" if resolved.system == "windows" else "/var/tmp/rk/b"


def _question() -> Ask | None:
    """A question on the terminal; where there is none nobody can be asked."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def asked(text: str) -> bool:
        from click import confirm

        return confirm(text, default=True, err=True)

    return asked


def _confirm(ask: Ask | None) -> None:
    if ask is not None and not ask("Build this?"):
        message = "stopped before anything was done"
        raise Interrupted(
            message, hint="change the plan or name another folder with `--work DIR`; `--yes` does not ask"
        )


def _consent() -> Consent | None:
    ask = _question()
    return None if ask is None else lambda remedy: ask(f"Fix: {remedy.summary}. Apply this fix and continue?")


def _heartbeat() -> float:
    """Seconds between two lines in a log."""
    named = os.environ.get("REKINDLE_HEARTBEAT", "")
    return max(1.0, float(named)) if named.isdigit() else HEARTBEAT


def _would(
    resolved: BuildRequest, choices: Choices, shown: overview.Overview, pinned: tuple[Finding, ...]
) -> BuildReport:
    chosen, _, _, version = whole.prepare(resolved, choices, shown.folder, {}, capture=False)
    return BuildReport(
        folder=shown.folder,
        wheel=None,
        version=version,
        steps=tuple(StepReport(name=step.name, state="planned") for step in steps.STEPS),
        findings=(*pinned, *chosen.findings),
        overview=shown,
    )


def _tidied(folders: Folders, resolved: BuildRequest, *, dry_run: bool) -> BuildReport:
    found = tidy.tidy(folders, dry_run=dry_run)
    return BuildReport(
        folder=str(folders.root), wheel=found.wheel, version=resolved.version or "", steps=(), tidied=found
    )


def text(report: BuildReport) -> str:
    if report.tidied is not None:
        return tidy.text(report.tidied)
    planned = [step.name for step in report.steps if step.state == "planned"]
    lines = [overview.text(report.overview), f"steps      {', '.join(planned)}"] if planned and report.overview else []
    lines.append(f"wheel   {report.wheel}" if report.wheel else f"version {report.version}")
    if report.cache and report.cache.rate is not None:
        lines.append(f"cache   {report.cache.hits} hits, {report.cache.misses} misses")
    used = governor.summary(report.governor) if report.governor else None
    if used:
        lines.append(f"memory  {used}")
    if report.record:
        lines.append(f"record  {report.record}")
    lines.append(f"folder  {report.folder}")
    if report.wheel and not planned:
        lines.append("`rekindle build --tidy` with the same plan frees what the finished build no longer needs")
    return "\n".join(lines)
