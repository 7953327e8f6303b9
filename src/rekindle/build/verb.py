"""What `rekindle build` and `rekindle env` do, between the command line and the build itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build import building, options, request, steps
from rekindle.build.building import BuildReport, Choices, StepReport
from rekindle.build.folders import Folders, folder_of
from rekindle.build.launcher import find_launcher
from rekindle.build.request import BuildFile, BuildRequest
from rekindle.errors import UsageError
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
        jobs=asked["jobs"],
        work=str(Path(asked["work"]).resolve()) if asked["work"] else None,
        gpu=bool(seen.gpus),
        launcher=find_launcher(asked["launcher"], os.environ),
    )
    if dry_run or machine is not None:
        if not dry_run:
            message = "a build cannot be carried out on a recorded machine"
            raise UsageError(message, hint="add `--dry-run` to see what would be done there")
        return _would(resolved, choices)
    return building.build(resolved, choices, tell=tell, observe=Ticker(tell))


def look(snapshot: Path | None) -> Machine:
    if snapshot is not None:
        from rekindle.machine.snapshot import load

        return load(snapshot)
    from rekindle.machine.look import look as probe

    return probe()


def text(report: BuildReport) -> str:
    """The last lines a person sees."""
    lines = []
    if any(step.state == "planned" for step in report.steps):
        lines += [f"{step.name:<10} would be done" for step in report.steps]
    lines.append(f"wheel   {report.wheel}" if report.wheel else f"version {report.version}")
    lines.append(f"folder  {report.folder}")
    return "\n".join(lines)


class Ticker:
    """Ninja's `[n/m]` as a line now and then: enough for a log, quiet enough for a night."""

    def __init__(self, tell: Callable[[str], None], every: float = 30.0) -> None:
        self.tell = tell
        self.every = every
        self.last = time.monotonic()

    def __call__(self, line: str) -> None:
        if line.startswith("[") and time.monotonic() - self.last >= self.every:
            count = line[1:].partition("]")[0]
            if "/" in count:
                self.last = time.monotonic()
                self.tell(f"{time.strftime('%H:%M:%S')}   {count} files")


def _with_source(wanted: BuildFile, source: Path | None) -> BuildFile:
    return msgspec.structs.replace(wanted, source=str(source.resolve())) if source else wanted


def _would(resolved: BuildRequest, choices: Choices) -> BuildReport:
    folders = Folders(Path(choices.work) if choices.work else folder_of(resolved))
    chosen, _, _, version = building.prepare(resolved, choices, folders, {})
    return BuildReport(
        folder=str(folders.root),
        wheel=None,
        version=version,
        steps=tuple(StepReport(name=step.name, state="planned") for step in steps.STEPS),
        findings=chosen.findings,
    )
