"""Failures that nobody sees: builds whose exit code is lost in a pipe, ignored, or overwritten at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.review.builds import ScriptBuild
from rekindle.review.document import Dialect
from rekindle.review.remark import Raised, raised
from rekindle.review.rules.words import SHOWN
from rekindle.review.subject import Subject

_TEES = frozenset({"tee", "tee-object"})


def check(subject: Subject) -> Iterator[Raised]:
    builds = [step for step in subject.reached_builds if not step.item.child]
    tees = list(_tees(subject, builds))
    if not subject.notes:
        yield from tees
    told = {found.line for found in tees}
    unchecked = [step for step in builds if not (step.item.checked or {step.line, step.item.line} & told)]
    sure = [item for item in subject.trace.invocations if not item.conditional]
    if subject.notes:
        # Each block is a script of its own.
        last = next((item for item in sure if re.fullmatch(r"(?i)exit /b 0", item.text.strip())), None)
    else:
        last = next((item for item in reversed(sure) if item.reached and not item.child), None)
    if last is not None and unchecked and re.fullmatch(r"(?i)exit(?:\s+/b)?\s+0", last.text.strip()):
        yield raised("always-success", last.line, build=unchecked[0].line, shell=SHOWN[last.dialect])
        return
    step = unchecked[-1] if unchecked and not (subject.notes or tees) else None
    if step is not None and step is builds[-1] and _hidden(subject, step):
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
    dialect = subject.document.dialect
    if dialect in (Dialect.DOCKERFILE, Dialect.STEPS):
        return step.item.after == ";"
    later = [item for item in subject.trace.after(step.item) if item.reached and not item.child]
    one_shell = dialect in (Dialect.BATCH, Dialect.SHELL, Dialect.POWERSHELL)
    own = [item for item in later if (one_shell or item.scope == step.item.scope) and subject.install(item) is None]
    own = [item for item in own if item.program not in ("cd", "popd", *_TEES) and item.line != step.item.line]
    if dialect is Dialect.WORKFLOW:
        return bool(own) and step.item.dialect.windows
    # A build of hours starts in the wrong folder, or without its packages, when a step before it failed.
    before = [item for item in subject.trace.before(step.item) if item.reached and not item.child]
    steps = [each for each in before if each.program in ("git", "cd", "set-location") or subject.install(each)]
    blind = step.what == "torch" and len(steps) > 1 and not any(item.checked for item in steps)
    return bool(own) or blind
