"""What `rekindle build` does, between the command line and the build itself.

What a plan pins (the commit of the source, the bundle's wheels) is held against what is here before anything is done;
with `--provision` what the machine lacks is assembled first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from rekindle.build import overview
from rekindle.build.configure import compiler_cache, options, request, tools
from rekindle.build.configure.compiler_cache import find_launcher, remote
from rekindle.build.configure.options import Choices
from rekindle.build.configure.request import BuildFile, BuildRequest, Compiler, fitting_cudnns, mkl_of
from rekindle.build.configure.usual import with_tools
from rekindle.build.governor import governor
from rekindle.build.graft.ninja_file import SUBMODULES
from rekindle.build.progress import watch
from rekindle.build.progress.watch import HEARTBEAT, Now, Progress
from rekindle.build.run import build as whole
from rekindle.build.run import folders as tidy
from rekindle.build.run import own_python, steps
from rekindle.build.run.build import BuildReport, StepReport
from rekindle.build.run.fixes import Consent
from rekindle.build.run.folders import Folders, folder_of, source_of, wheel_version, without_spaces
from rekindle.core import codec, console, files
from rekindle.core.command import Command, rekindle
from rekindle.core.errors import BadInput, Interrupted, MissingTool, NotFound, RekindleError, StepFailed, UsageError
from rekindle.core.findings import Finding, Fix, State, passed, unverified
from rekindle.inputs.versions import read_python
from rekindle.machine import snapshot
from rekindle.machine.host import Host
from rekindle.machine.model import Machine
from rekindle.machine.python import interpreters
from rekindle.machine.toolchain import gcc
from rekindle.source import checkout, git, tree
from rekindle.toolchain import command as toolchain

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
        # The tools are named above; the usual hint would be to add what was given. A Python nobody brings.
        wanted = wanted_by(command)
        request.python_of(wanted, _with_python(wanted, seen))
        raise type(error)(error.message, hint="without `--dry-run` they are installed first") from error
    choices = codec.like(
        Choices,
        command,
        overrides=options.parse(command.pairs),
        jobs=command.jobs or tools.jobs_for(seen, cuda=resolved.cuda is not None),
        ceiling=command.jobs or seen.processor.cores,
        work=str(command.work.resolve()) if command.work else None,
        bundle=str(command.bundle.resolve()) if command.bundle else None,
        gpu=tools.can_run(resolved.gpu_targets, (gpu.capability for gpu in seen.gpus)),
        launcher=find_launcher(command.launcher or ("ccache" if command.exchanges_cache else None), os.environ),
        cache_place=remote(command.launcher),
        again=again(command.words or ("build", str(command.plan))),
    )
    if command.machine is not None and not command.dry_run:
        raise UsageError("cannot build from a snapshot", hint="add `--dry-run` to see what would be done there")
    bundle = Path(choices.bundle) if choices.bundle else None
    # A source that is named is here, also where the machine is a recorded one.
    pinned = check_pins(resolved, bundle) if command.machine is None or command.source is not None else ()
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
    progress = Progress(tell, live=watch.terminal(), every=_heartbeat(), listen=listen)
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
            written = str(overview.write_record(folders, shown, wheel_version(resolved)))
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
    """The machine after what the build lacks was installed; with `--dry-run` only named, and taken to be there."""
    if command.machine is not None:
        raise UsageError("cannot provision a snapshot", hint="run it on that machine")
    wanted = wanted_by(command)
    overrides = options.parse(command.pairs)
    if command.dry_run:
        tools = lacking(wanted, seen, overrides)
        for tool in tools:
            tell(f"would install {tool}")
        return with_tools(wanted, seen, tools)
    done = install_lacking(wanted, seen, overrides, accept_licence=command.accept_licence, say=tell, ask=_question())
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
    if command.machine is None and not elsewhere:
        seen = _with_python(wanted, seen)
    return request.resolve(wanted, seen, here=None if elsewhere else command.plan.resolve().parent)


def _with_python(wanted: BuildFile, seen: Machine) -> Machine:
    """With the Python that the plan asks for, where it is on PATH by its own name only: `python3.12`."""
    if wanted.python is None or "/" in wanted.python or "\\" in wanted.python:
        return seen
    minor = read_python(wanted.python).version
    if any(found.minor == minor for found in seen.pythons):
        return seen
    named = interpreters.by_name(Host(), minor)
    return msgspec.structs.replace(seen, pythons=(*seen.pythons, named)) if named else seen


def wheel_in(given: Path) -> Path:
    """The wheel, or the only torch wheel of a folder."""
    if not given.exists():
        hint = "`rekindle plan` prints the line that downloads it, under `or compile less`"
        raise NotFound(f"no such file: `{given}`", hint=hint)
    if not given.is_dir():
        return given.resolve()
    found = sorted(given.glob("torch-*.whl"))
    if len(found) != 1:
        raise BadInput(f"`{given}` has {len(found)} wheels of torch, not one", hint="name the official wheel itself")
    return found[0].resolve()


def look(recorded: Path | None) -> Machine:
    return snapshot.load(recorded) if recorded is not None else snapshot.here()


def again(words: Sequence[str]) -> str:
    """The same command once more, as it is typed, without what would throw away what is done."""
    kept = [
        word
        for before, word in zip(("", *words), words, strict=False)
        if word not in ("--clean", "--from", "--auto-fix") and before != "--from" and not word.startswith("--from=")
    ]
    return str(rekindle(*kept))


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
        return tidy.tidy_text(report.tidied)
    planned = [step.name for step in report.steps if step.state == "planned"]
    lines = []
    if planned and report.overview:
        lines.append(overview.text(report.overview))
        lines.append(console.wrap(", ".join(planned), first="steps      ", indent=" " * 11))
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


def check_pins(request: BuildRequest, bundle: Path | None) -> tuple[Finding, ...]:
    """Stops at what differs from the plan; says what could not be compared."""
    if bundle is not None:
        own_python.check_bundle(bundle, request.wheels)
    check_submodules(request)
    source = source_of(request)
    if request.commit is None or not (request.source or source.is_dir()):
        return ()
    found = tree.head(source)
    if found is None:
        text = f"`{source}` is not a git checkout: whether it is commit {request.commit[:12]} could not be checked"
        fix = Fix(text="leave `--source` out to build the pinned commit, or name a clone")
        return (unverified("commit", text, fix=fix),)
    if found != request.commit:
        message = f"`{source}` is at commit {found[:12]}, but the plan pins {request.commit[:12]}"
        raise BadInput(message, hint="check out the pinned commit, or write a plan for this release")
    return (_as_committed(source, found) if request.source else _passed(found),)


def check_submodules(request: BuildRequest) -> None:
    """A clone without them, or GitHub's .zip, would stop in configure, after everything was installed."""
    if not request.torch or not request.source:
        return
    source = Path(request.source)
    mark = checkout.mark_of(source)
    lacking = git.empty(source, mark.without if mark else ())
    if request.base is not None:
        lacking = tuple(name for name in lacking if name in SUBMODULES)
    if not lacking:
        return
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    message = f"`{source}` lacks its submodules: `{lacking[0]}`{more} is empty"
    fill = Command("git", "-C", str(source), "submodule", "update", "--init", "--recursive")
    whole = "leave `--source` out: Rekindle brings the complete source"
    raise BadInput(message, hint=f"`{fill}`, or {whole}" if (source / ".git").exists() else whole)


def _as_committed(source: Path, commit: str) -> Finding:
    """A source of the user's own: nobody has edited its files since the commit."""
    try:
        edited = checkout.edited(source, commit)
    except (MissingTool, StepFailed) as error:
        text = f"the source is at commit {commit[:12]}; whether its files were edited could not be checked"
        return unverified("commit", text, fix=error.message)
    if edited:
        more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
        message = (
            f"the source was edited: `{edited[0]}`{more} of `{source}` is not as in {commit[:12]}, the plan's commit"
        )
        hint = "undo that (`git stash`), or leave `--source` out; a build file without `commit` builds what you edited"
        raise BadInput(message, hint=hint)
    return _passed(commit)


def _passed(commit: str) -> Finding:
    return passed("commit", f"the source is at the pinned commit {commit[:12]}")


def lacking(wanted: BuildFile, machine: Machine, overrides: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """What is not here of what the build asks for, as `rekindle toolchain install` takes it. MSVC is not among it: only
    Microsoft's installer brings that."""
    tools: list[str] = []
    cuda = wanted.cuda
    if cuda is not None and wanted.cuda_root is None:
        here = [kit for kit in machine.toolkits if kit.nvcc and kit.version and kit.version.starts_with(cuda)]
        # One that lacks cuBLAS compiles a kernel, and then no PyTorch.
        if not any(not kit.missing for kit in here):
            tools.append(f"cuda=={cuda}")
        if machine.os == "linux" and wanted.compiler is None and not gcc.taken_by(cuda, machine.compilers):
            # Which one is decided where it is looked for: the newest that this CUDA takes and that starts here.
            tools.append("gcc")
    if wanted.cudnn is not None and not fitting_cudnns(wanted, machine):
        tools.append(f"cudnn=={wanted.cudnn}")
    if _lacks_openblas(wanted, machine, overrides or {}):
        tools.append("openblas")
    return tuple(tools)


def install_lacking(
    wanted: BuildFile,
    machine: Machine,
    overrides: Mapping[str, str] | None = None,
    *,
    accept_licence: bool,
    say: Callable[[str], None],
    ask: Callable[[str], bool] | None,
) -> bool:
    """Install it: sizes, sources and licences are shown first. Whether anything was installed."""
    tools = lacking(wanted, machine, overrides)
    if not tools:
        say("nothing to provision: everything that the build needs is here")
        return False
    cuda = str(wanted.cuda) if wanted.cuda else None
    command = toolchain.InstallCommand(tools=tools, cuda=cuda, accept_licence=accept_licence)
    done = toolchain.install(command, say=say, ask=ask or (lambda _: False))
    for kit in done.kits:
        say(f"installed {kit.id}")
    return True


def _lacks_openblas(wanted: BuildFile, machine: Machine, overrides: Mapping[str, str]) -> bool:
    """Which BLAS the build takes follows from its options; nothing else of the request matters to that."""
    if not wanted.torch or machine.os != "linux" or machine.openblas:
        return False
    request = BuildRequest(
        source="",
        system=machine.os,
        arch=machine.arch,
        python="python",
        compiler=Compiler(kind="gcc", cxx="g++", c="gcc", cuda_host="g++"),
        torch=wanted.torch,
        profile=wanted.profile,
        options=wanted.options,
        requires=wanted.requires,
        mkl=mkl_of(wanted, machine),
    )
    return options.uses_openblas(options.resolve(request, overrides, allow_unknown=True).resolved)
