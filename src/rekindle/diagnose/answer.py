"""What a diagnosis says."""

from __future__ import annotations

from enum import Enum

import msgspec

from rekindle.core.codec import JsonAnswer
from rekindle.core.command import Command
from rekindle.core.findings import Fix
from rekindle.core.redact import redact
from rekindle.diagnose.evidence import Judged
from rekindle.diagnose.facts import Entity

VERY_LIKELY, LIKELY, POSSIBLE = 0.95, 0.75, 0.5
"""What an answer stands on: the message and something beside it, the message alone, or a vague message or warning."""


class LogOutcome(str, Enum):
    """`cause`: it failed, and this is why. `none`: nothing here failed. `unknown`: neither shows."""

    CAUSE = "cause"
    NONE = "none"
    UNKNOWN = "unknown"


class EvidenceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that shows it, as it stands in the file (control characters and secrets removed)."""

    line: int
    text: str


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One root cause. `explained_by` is set when another cause in the list accounts for it.

    `fix` is the thing to do first, `more` is what else may help, in order.
    """

    label: str
    title: str
    family: str
    confidence: float
    line: int
    evidence: tuple[EvidenceLine, ...]
    explanation: str
    fix: Fix
    more: tuple[Fix, ...] = ()
    job: str | None = None
    explained_by: str | None = None
    links: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def whole(self) -> Fix:
        """All that may help as one."""
        every = (self.fix, *self.more)
        commands = dict.fromkeys(command for each in every for command in each.commands)
        return msgspec.structs.replace(self.fix, text=" ".join(each.text for each in every), commands=tuple(commands))


class Diagnosis(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    """The first cause is the one to fix first. `wrappers` are the lines that merely report failure.

    Where nothing is recognised, `next` is what would tell more, and `runs` what PyTorch the card that was read takes.
    """

    schema: str = "rekindle.diagnose/1"
    source: str = ""
    outcome: LogOutcome
    summary: str
    causes: tuple[Cause, ...] = ()
    wrappers: tuple[EvidenceLine, ...] = ()
    unexplained: tuple[EvidenceLine, ...] = ()
    lines: int = 0
    facts: dict[str, str] = {}
    entities: tuple[Entity, ...] = ()
    judged: tuple[Judged, ...] = ()
    next: tuple[str, ...] = ()
    runs: Fix | None = None


def shown(diagnosis: Diagnosis) -> Diagnosis:
    """The same without user names, as it is printed: what the evidence hides, the fix does not tell.

    A build applies the fix itself and needs it as it is.
    """
    named = ((cause, _unnamed(cause.fix), tuple(map(_unnamed, cause.more))) for cause in diagnosis.causes)
    causes = tuple(msgspec.structs.replace(cause, fix=first, more=more) for cause, first, more in named)
    return msgspec.structs.replace(diagnosis, causes=causes)


def _unnamed(fix: Fix) -> Fix:
    text = redact(fix.text, names=())
    commands = tuple(Command.parse(redact(str(command), names=())) for command in fix.commands)
    return msgspec.structs.replace(fix, text=text, commands=commands)
