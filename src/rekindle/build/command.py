"""What `rekindle build` and `rekindle env` do, between the command line and the build itself."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.configure import jobs, options, request
from rekindle.build.configure.compiler_cache import find_launcher, remote
from rekindle.build.configure.environment import Environment, difference
from rekindle.build.configure.options import Resolved
from rekindle.build.configure.request import BuildFile, BuildRequest
from rekindle.build.governor import governor
from rekindle.build.progress import view
from rekindle.build.progress.watch import HEARTBEAT, Progress
from rekindle.build.run import build as building
from rekindle.build.run import locked, steps
from rekindle.build.run.build import BuildReport, Choices, StepReport
from rekindle.build.run.fixes import Consent
from rekindle.build.run.folders import Folders, folder_of, without_spaces
from rekindle.build.run.remedy import Remedy
from rekindle.core.errors import UsageError
from rekindle.core.findings import Finding, State
from rekindle.core.version import typed
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.machine.model import Machine


def build(
    plan: Path,
    *,
    machine: Path | None,
    dry_run: bool,
    asked: Mapping[str, Any],
    tell: Callable[[str], None],
) -> BuildReport:
    """Read, resolve, carry out."""
    wanted = _with_source(request.read(plan), asked.get("source"))
    seen = look(machine)
    resolved = request.resolve(wanted, seen, here=plan.resolve().parent)
    choices = Choices(
        overrides=options.parse(asked["pairs"]),
        allow_unknown=asked["allow_unknown"],
        until=asked["until"],
        start=asked["start"],
        clean=asked["clean"],
        jobs=asked["jobs"] or jobs.computed(seen, cuda=resolved.cuda is not None),
        ceiling=asked["jobs"] or seen.processor.cores,
        work=str(Path(asked["work"]).resolve()) if asked["work"] else None,
        bundle=str(Path(asked["bundle"]).resolve()) if asked["bundle"] else None,
        gpu=bool(seen.gpus),
        launcher=find_launcher(asked["launcher"], os.environ),
        cache_place=remote(asked["launcher"]),
        auto_fix=asked["auto_fix"],
        again=_again(asked.get("words") or ("build", str(plan))),
    )
    if machine is not None and not dry_run:
        message = "cannot build from a snapshot"
        raise UsageError(message, hint="add `--dry-run` to see what would be done there")
    pinned = locked.check(resolved, Path(choices.bundle) if choices.bundle else None) if machine is None else ()
    if dry_run:
        return _would(resolved, choices, pinned)
    for finding in pinned:
        if finding.state is not State.PASS:
            tell(f"{finding.state.value}: {finding.found}")
    return building.build(
        resolved,
        choices,
        tell=tell,
        progress=Progress(tell, live=view.terminal(), every=_heartbeat()),
        consent=_consent(),
    )


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One variable of the build, before and after. None: not set."""

    name: str
    before: str | None
    after: str | None
    why: str


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


def environment(plan: Path | None, *, machine: Path | None, asked: Mapping[str, Any]) -> tuple[EnvReport, Environment]:
    """What the build of this plan (or of what the command line says) would run in."""
    seen = look(machine)
    if plan is not None:
        wanted, here = request.read(plan), plan.resolve().parent
    else:
        wanted, here = _wanted(asked, seen), None
    resolved = request.resolve(wanted, seen, here=here)
    root = _root(resolved, seen, elsewhere=machine is not None)
    before = seen.environment if machine is not None else dict(os.environ)
    choices = Choices(overrides=options.parse(asked["pairs"]), allow_unknown=asked["allow_unknown"])
    chosen, computed, _, version = building.prepare(
        resolved, choices, root, before, capture=machine is None and not asked["shell"]
    )
    report = EnvReport(
        system=resolved.system,
        vcvars=computed.vcvars,
        variables=tuple(
            Variable(name=each.name, before=each.before, after=each.after, why=each.why)
            for each in difference(before, computed)
        ),
        options=chosen.resolved,
        findings=chosen.findings,
        version=version,
    )
    return report, computed


def list_options(asked: Mapping[str, Any]) -> OptionsReport:
    torch = asked["torch"] or torch_releases()[-1].minor
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
    from rekindle.core import console

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


def _wanted(asked: Mapping[str, Any], seen: Machine) -> BuildFile:
    from rekindle.knowledge.gpu.gpus import capabilities_of

    named = capabilities_of(asked["gpus"])
    listed = ";".join(str(capability) for capability in sorted({*named} or {*seen.capabilities}))
    cuda = typed(asked["cuda"], "`--cuda`", "11.8") if asked["cuda"] else None
    chosen = seen.toolkit if cuda is None and seen.toolkit else None
    return BuildFile(
        source=".",
        torch=asked["torch"],
        cuda=cuda or (chosen.version.major_minor if chosen and chosen.version else None),
        arch_list=listed,
        python=asked["python"],
        toolset=asked["toolset"],
        profile=asked["profile"] or "fast",
    )


def _root(resolved: BuildRequest, seen: Machine, *, elsewhere: bool) -> str:
    """The build's folder. On another machine the cache's place is not known: a short one stands for it."""
    if not elsewhere:
        return str(without_spaces(folder_of(resolved)))
    return "C:\\rk\\b" if seen.os == "windows" else "/var/tmp/rk/b"


def look(snapshot: Path | None) -> Machine:
    if snapshot is not None:
        from rekindle.machine.snapshot import load

        return load(snapshot)
    from rekindle.machine.probe import look as probe

    return probe()


def text(report: BuildReport) -> str:
    """The last lines a person sees."""
    lines = []
    if any(step.state == "planned" for step in report.steps):
        lines += [f"{step.name:<10} would be done" for step in report.steps]
    lines.append(f"wheel   {report.wheel}" if report.wheel else f"version {report.version}")
    if report.cache and report.cache.rate is not None:
        lines.append(
            f"cache   {report.cache.hits} of {report.cache.hits + report.cache.misses} compiles came out of it"
        )
    used = governor.summary(report.governor) if report.governor else None
    if used:
        lines.append(f"memory  {used}")
    lines.append(f"folder  {report.folder}")
    return "\n".join(lines)


def _again(words: Sequence[str]) -> str:
    """The same command once more, as it is typed, without what would throw away what is done."""
    kept = [
        word
        for before, word in zip(("", *words), words, strict=False)
        if word not in ("--clean", "--from", "--auto-fix") and before != "--from" and not word.startswith("--from=")
    ]
    quoted = subprocess.list2cmdline(kept) if os.name == "nt" else shlex.join(kept)
    return f"rekindle {quoted}"


def _heartbeat() -> float:
    """Seconds between two lines in a log."""
    named = os.environ.get("REKINDLE_HEARTBEAT", "")
    return max(1.0, float(named)) if named.isdigit() else HEARTBEAT


def _consent() -> Consent | None:
    """A question on the terminal; where there is none nobody can be asked."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def asked(remedy: Remedy) -> bool:
        from click import confirm

        return confirm(f"Rekindle can {remedy.summary} and go on. Shall it?", default=True, err=True)

    return asked


def _with_source(wanted: BuildFile, source: Path | None) -> BuildFile:
    return msgspec.structs.replace(wanted, source=str(source.resolve())) if source else wanted


def _would(resolved: BuildRequest, choices: Choices, pinned: tuple[Finding, ...]) -> BuildReport:
    folders = Folders(without_spaces(Path(choices.work) if choices.work else folder_of(resolved)))
    chosen, _, _, version = building.prepare(resolved, choices, str(folders.root), {}, capture=False)
    return BuildReport(
        folder=str(folders.root),
        wheel=None,
        version=version,
        steps=tuple(StepReport(name=step.name, state="planned") for step in steps.STEPS),
        findings=(*pinned, *chosen.findings),
    )
