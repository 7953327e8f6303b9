"""Fixes on the way: what a diagnosed failure lets Rekindle do by itself, once each, with consent.

What may be done is data (`knowledge/logs/mechanical.toml`). What was done stands in the journal and stays in force
for this build's folder, so that the same command later builds the same thing; `--clean` forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from rekindle.build.configure import tree
from rekindle.build.configure.options import Choices
from rekindle.build.configure.request import BuildRequest
from rekindle.build.run.journal import Journal, JournalEntry, Remedy
from rekindle.build.run.steps import Context
from rekindle.core.command import Command
from rekindle.core.errors import StepFailed
from rekindle.diagnose.answer import LIKELY, Cause, Diagnosis, LogOutcome
from rekindle.knowledge.logs.signatures import FixAction, Mechanical, of_cause
from rekindle.knowledge.torch import patches as catalogue

Consent = Callable[[Remedy], bool]


class Force(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier fixes have put in force, and which of them this run has tried."""

    jobs: int | None = None
    variables: dict[str, str] = {}
    patches: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

    def plus(self, remedy: Remedy, *, tried: bool = True) -> Force:
        return Force(
            jobs=remedy.jobs or self.jobs,
            variables={**self.variables, **remedy.variables},
            patches=tuple(dict.fromkeys((*self.patches, *remedy.patches))),
            tried=(*self.tried, remedy.id) if tried else self.tried,
        )


class Fixer:
    """Decides after a failed step whether to go on, and with what. Each fix is made once in a run."""

    def __init__(
        self, journal: Journal, choices: Choices, tell: Callable[[str], None], consent: Consent | None
    ) -> None:
        self.journal, self.tell, self.consent = journal, tell, consent
        self.choices = choices
        self.force = in_force(journal.entries)
        self.made: list[Remedy] = []
        self.declined: Remedy | None = None
        earlier = offered(journal.entries)
        if earlier and choices.auto_fix:
            self._make(earlier)

    def fixed(self, context: Context) -> bool:
        # What does not fit into memory even alone has been tried alone: fewer jobs would change nothing.
        unfit = context.governed is not None and context.governed.unfit
        remedy = None if unfit else remedy_for(context, self.force)
        if remedy is None:
            return False
        if not (self.choices.auto_fix or (self.consent and self.consent(remedy))):
            self.journal.write("offer", step=remedy.step, fix=remedy)
            self.declined = remedy
            return False
        self._make(remedy)
        return True

    def said(self, error: StepFailed) -> StepFailed:
        """The error, with the command that makes the fix where there is one."""
        if self.declined is None:
            return error
        hint = (
            f"Rekindle can {self.declined.summary} and continue:\n\n  {self.choices.again} --auto-fix\n\n{error.hint}"
        )
        return StepFailed(error.message, hint=hint)

    def _make(self, remedy: Remedy) -> None:
        self.journal.write("fix", step=remedy.step, fix=remedy)
        self.tell(f"{'fix':<10} {remedy.summary}; continuing")
        self.force = self.force.plus(remedy)
        self.made.append(remedy)
        # Nothing is done again that the fix does not touch, whatever the command line asked for at first.
        self.choices = msgspec.structs.replace(self.choices, start=None, clean=False)


def in_force(entries: Iterable[JournalEntry]) -> Force:
    """What the journal says was fixed. Jobs are not taken from it: another day may have more memory to spare."""
    force = Force()
    for entry in entries:
        if entry.event == "fix" and entry.fix:
            force = force.plus(msgspec.structs.replace(entry.fix, jobs=None), tried=False)
    return force


def offered(entries: list[JournalEntry]) -> Remedy | None:
    """The fix that the last run could have made and had no leave to."""
    for entry in reversed(entries):
        if entry.event in ("fix", "done"):
            return None
        if entry.event == "offer":
            return entry.fix
    return None


def remedy_for(context: Context, force: Force) -> Remedy | None:
    """The first thing that may be done about the causes found and has not been tried in this run."""
    causes = context.diagnosis.causes if context.diagnosis else ()
    likely = (each for each in causes if each.explained_by is None and each.confidence >= LIKELY)
    # The first cause is the one to fix first: what cannot be done about it is not made up for elsewhere.
    cause = next(likely, None)
    rows = [row for row in of_cause(cause.label) if row.id not in force.tried] if cause else []
    return next((made for row in rows if cause and (made := _made(row, cause, context, force))), None)


def _made(row: Mechanical, cause: Cause, context: Context, force: Force) -> Remedy | None:
    request, tools = context.request, context.tools
    plain = Remedy(id=row.id, cause=cause.label, step=context.step or "", text=row.text)
    if row.action is FixAction.RERUN:
        return plain
    if row.action is FixAction.JOBS:
        now = context.compiles_at_once
        fewer = max(1, now // row.divide)
        return msgspec.structs.replace(plain, jobs=fewer) if fewer < now else None
    if row.action is FixAction.VARIABLES:
        wanted = assignments(cause.whole.commands)
        new = {name: value for name, value in wanted.items() if force.variables.get(name) != value}
        return msgspec.structs.replace(plain, variables=_added(new, force.variables)) if new else None
    if not request.torch:
        return None
    setting = tree.patch_setting(request, tools)
    have = {*tree.wanted_patches(request, tools), *force.patches}
    fitting = tuple(
        id
        for id in row.patches
        if id not in have and catalogue.judge(catalogue.patch(id), setting).need is not catalogue.Need.NO
    )
    return msgspec.structs.replace(plain, patches=fitting) if fitting else None


def assignments(commands: Iterable[Command]) -> dict[str, str]:
    """The variables that these commands only set. What needs a shell to be worked out is left alone."""
    return {
        name: value
        for command in commands
        if not command.words
        for name, value in command.environment.items()
        if isinstance(value, str)
    }


def _added(new: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Flags add up: a second warning does not bring the first one back."""
    return {
        name: f"{before[name]} {value}" if name.endswith("FLAGS") and before.get(name) else value
        for name, value in new.items()
    }


def diagnose_log(log: Path, request: BuildRequest) -> Diagnosis | None:
    """The diagnosis of this log, told what the plan knows; None when the log shows nothing."""
    if not log.exists():
        return None
    # Only after a failure: reading the signatures takes longer than starting a build.
    from rekindle.diagnose import diagnosis, facts

    known = facts.Facts(
        gpus=tuple(sorted({target.capability for target in request.gpu_targets})),
        os=request.system,
        torch=str(request.release) if request.release else None,
        cuda=str(request.cuda.version.major_minor) if request.cuda else None,
        toolset=str(request.compiler.toolset) if request.compiler.toolset else None,
    )
    found = diagnosis.diagnose_file(log, known=known)
    return None if found.outcome is LogOutcome.NONE else found
