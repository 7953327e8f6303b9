"""Fixes on the way: what a diagnosed failure lets Rekindle do by itself, once each, with consent.

What may be done is data (`knowledge/decided/mechanical.toml`). What was done stands in the journal and stays in force
for this build's folder, so that the same command later builds the same thing; `--clean` forgets it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping

import msgspec

from rekindle.build import patches
from rekindle.build.journal import Entry
from rekindle.build.remedy import Remedy
from rekindle.build.request import BuildRequest
from rekindle.build.tools import Tools
from rekindle.diagnose.answer import Cause, Diagnosis
from rekindle.knowledge import patches as catalogue
from rekindle.knowledge.mechanical import Action, Mechanical, of_cause

_SURE = 0.6
"""Below this a cause is only possible, and nothing is done about it unasked."""


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


def in_force(entries: Iterable[Entry]) -> Force:
    """What the journal says was fixed. Jobs are not taken from it: another day may have more memory to spare."""
    force = Force()
    for entry in entries:
        if entry.event == "fix" and entry.fix:
            force = force.plus(msgspec.structs.replace(entry.fix, jobs=None), tried=False)
    return force


def offered(entries: list[Entry]) -> Remedy | None:
    """The fix that the last run could have made and had no leave to."""
    for entry in reversed(entries):
        if entry.event in ("fix", "done"):
            return None
        if entry.event == "offer":
            return entry.fix
    return None


def remedy(
    found: Diagnosis, *, step: str, request: BuildRequest, tools: Tools, jobs: int | None, force: Force
) -> Remedy | None:
    """The first thing that may be done about the causes found and has not been tried in this run."""
    for cause in found.causes:
        if cause.explained_by is not None or cause.confidence < _SURE:
            continue
        for row in of_cause(cause.label):
            if row.id in force.tried:
                continue
            made = _made(row, cause, step=step, request=request, tools=tools, jobs=jobs, force=force)
            if made is not None:
                return made
        # The first cause is the one to fix first: what cannot be done about it is not made up for elsewhere.
        return None
    return None


def _made(
    row: Mechanical,
    cause: Cause,
    *,
    step: str,
    request: BuildRequest,
    tools: Tools,
    jobs: int | None,
    force: Force,
) -> Remedy | None:
    plain = Remedy(id=row.id, cause=cause.label, step=step, text=row.text)
    if row.action is Action.RERUN:
        return plain
    if row.action is Action.JOBS:
        now = jobs or os.cpu_count() or 1
        fewer = max(1, now // row.divide)
        return msgspec.structs.replace(plain, jobs=fewer) if fewer < now else None
    if row.action is Action.VARIABLES:
        wanted = assignments(cause.fix.commands)
        new = {name: value for name, value in wanted.items() if force.variables.get(name) != value}
        return msgspec.structs.replace(plain, variables=_added(new, force.variables)) if new else None
    if not request.torch:
        return None
    setting = patches.setting(request, tools)
    have = {*patches.wanted(request, tools), *force.patches}
    fitting = tuple(
        id
        for id in row.patches
        if id not in have and catalogue.judge(catalogue.patch(id), setting).need is not catalogue.Need.NO
    )
    return msgspec.structs.replace(plain, patches=fitting) if fitting else None


def assignments(commands: Iterable[str]) -> dict[str, str]:
    """The variables that `export A=B C=D` and `set A=B` set. What needs a shell to be worked out is left alone."""
    found: dict[str, str] = {}
    for command in commands:
        verb, _, rest = command.partition(" ")
        if verb == "set":
            pairs = [rest]
        elif verb == "export":
            pairs = shlex.split(rest)
        else:
            continue
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if equals and name.isidentifier() and not set(value) & set("$%`{"):
                found[name] = value
    return found


def _added(new: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Flags add up: a second warning does not bring the first one back."""
    return {
        name: f"{before[name]} {value}" if name.endswith("FLAGS") and before.get(name) else value
        for name, value in new.items()
    }
