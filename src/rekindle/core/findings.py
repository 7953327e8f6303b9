"""One finding, for the doctor, inspect, repair, verify, review and audit alike."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import partial

import msgspec

from rekindle.core.command import Command
from rekindle.core.errors import ChecksFailed, Unverified


class State(str, Enum):
    """The answer of a check. "Could not check" is UNVERIFIED and never a pass."""

    PASS = "PASS"
    WARN = "WARN"
    UNVERIFIED = "UNVERIFIED"
    FAIL = "FAIL"

    @property
    def rank(self) -> int:
        return list(State).index(self)


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about it: a sentence, and the commands where there are any.

    `mechanical` marks a fix that Rekindle may carry out itself, with consent, without a person deciding anything.
    """

    text: str
    commands: tuple[Command, ...] = ()
    mechanical: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`found` is what is so, `why` is why it matters, `fix` is what to do, `source` is how we know."""

    id: str
    state: State
    found: str
    why: str = ""
    fix: Fix | None = None
    source: str | None = None


def finding(
    state: State, id: str, found: str, *, why: str = "", fix: Fix | str | None = None, source: str | None = None
) -> Finding:
    told = Fix(text=fix) if isinstance(fix, str) else fix
    return Finding(id=id, state=state, found=found, why=why, fix=told, source=source)


passed, warned = partial(finding, State.PASS), partial(finding, State.WARN)
unverified, failed = partial(finding, State.UNVERIFIED), partial(finding, State.FAIL)


def worst(findings: Iterable[Finding]) -> State:
    return max((finding.state for finding in findings), key=lambda state: state.rank, default=State.PASS)


def exit_code(state: State) -> int:
    """What a verb that ran checks ends with."""
    if state is State.FAIL:
        return ChecksFailed.exit_code
    return Unverified.exit_code if state is State.UNVERIFIED else 0
