"""Failures that nobody sees: builds whose exit code is lost in a pipe, ignored, or overwritten at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.review.builds import ScriptBuild
from rekindle.review.document import Dialect
from rekindle.review.remark import Raised, raised
from rekindle.review.rules.words import SHOWN
from rekindle.review.subject import Subject
from rekindle.review.trace import Invocation

_TEES = frozenset({"tee", "tee-object"})


def check(subject: Subject) -> Iterator[Raised]:
    builds = [step for step in subject.builds if step.what != "other" and step.item.reached and not step.item.child]
    tees = list(_tees(subject, builds))
    if not subject.notes:
        yield from tees
    told = {found.line for found in tees}
    unchecked = [
        step for step in builds if not step.item.checked and step.line not in told and step.item.line not in told
    ]
    last = _last(subject)
    if subject.notes:
        # Each block is a script of its own.
        tees, told = [], set()
        zeros = [item for item in subject.trace.invocations if re.fullmatch(r"(?i)exit /b 0", item.text.strip())]
        last = next((item for item in zeros if not item.conditional), None)
    zero = last is not None and re.fullmatch(r"(?i)exit(?:\s+/b)?\s+0", last.text.strip()) is not None
    if zero and last is not None and unchecked:
        shell = SHOWN[last.dialect]
        yield raised("always-success", last.line, build=unchecked[0].line, shell=shell)
        return
    if subject.notes:
        return
    hidden = [step for step in unchecked[-1:] if step is builds[-1] and _hidden(subject, step)]
    if hidden and not tees:
        step = hidden[-1]
        how = {
            Dialect.BATCH: "add `|| exit /b 1` to it",
            Dialect.POWERSHELL: "look at $LASTEXITCODE after it; $ErrorActionPreference does not stop for programs",
        }.get(step.item.dialect, "begin the script with `set -e`")
        yield raised("no-error-check", step.item.line, how=how, shell=SHOWN[step.item.dialect])


def _tees(subject: Subject, builds: list[ScriptBuild]) -> Iterator[Raised]:
    for step in builds:
        item = step.item
        tee = next((name for name in item.piped if name in _TEES), None)
        if tee is None:
            continue
        if item.dialect is Dialect.SHELL and not item.pipefail and "PIPESTATUS" not in subject.document.text:
            yield raised("tee", item.line, tee=tee)
        elif item.dialect is Dialect.POWERSHELL and not item.checked:
            yield raised("tee-powershell", item.line, tee="Tee-Object")
        elif item.dialect is Dialect.BATCH:
            yield raised("tee-cmd", item.line, tee=tee)


def _hidden(subject: Subject, step: ScriptBuild) -> bool:
    """Commands follow that succeed whether the build did or not."""
    later = [
        item for item in subject.trace.invocations if item.order > step.item.order and item.reached and not item.child
    ]
    one_shell = subject.document.dialect in (Dialect.BATCH, Dialect.SHELL, Dialect.POWERSHELL)
    own = [item for item in later if (one_shell or item.scope == step.item.scope) and subject.install(item) is None]
    own = [item for item in own if item.program not in ("cd", "popd", *_TEES) and item.line != step.item.line]
    if subject.document.dialect in (Dialect.DOCKERFILE, Dialect.STEPS):
        return step.item.after == ";"
    if subject.document.dialect is Dialect.WORKFLOW:
        return any(item.scope == step.item.scope for item in own) and step.item.dialect.windows
    return bool(own) or (step.what == "torch" and _blind(subject, step))


def _blind(subject: Subject, step: ScriptBuild) -> bool:
    """A build of hours that starts in the wrong folder, or without its packages, when a step before it failed."""
    before = [
        item for item in subject.trace.invocations if item.order < step.item.order and item.reached and not item.child
    ]
    steps = [
        item for item in before if item.program in ("git", "cd", "set-location") or subject.install(item) is not None
    ]
    return len(steps) > 1 and not any(item.checked for item in steps)


def _last(subject: Subject) -> Invocation | None:
    reached = [item for item in subject.trace.invocations if item.reached and not item.child and not item.conditional]
    return reached[-1] if reached else None
