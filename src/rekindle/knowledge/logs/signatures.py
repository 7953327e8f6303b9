"""The catalogue of causes: how each shows itself in a log, what it means, what to do.

One file per family under `logs/signatures/`. Patterns are in RE2 syntax: a log is foreign text, and a pattern that
could run away on it must not exist. They match codes (C1189, LNK1104, WinError 126) rather than English wherever the
tool prints one, because Windows speaks the user's language.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from rekindle.knowledge.tables import NamedRow, Row, cached, decided, rows

FAMILIES: tuple[str, ...] = (
    "host_compiler",
    "cuda_toolkit",
    "gpu",
    "libraries",
    "packaging",
    "sources",
    "link",
    "shell",
    "resources",
)

OTHER_VENDOR = "gpu_of_other_vendor"


class FixStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a fix. `{name}` is filled from the log, the machine or the plan; a step with a gap is left out.

    `os` limits it to one system. `fallback` marks a step shown only when no other step could be filled. `plan`: the
    resolver's commands for the known card and system go with it; without them the step is left out; with
    `keep` they stay at the torch that is installed, where that can be had; with `alone` the text
    stands without them too. `instead`: where it can be shown, nothing but such steps is. `when`
    is the condition, an expression over what the log, the tables and the machine tell (`diagnose/expressions.py`).
    """

    text: str
    command: str | None = None
    os: str | None = None
    fallback: bool = False
    plan: bool = False
    keep: bool = False
    alone: bool = False
    instead: bool = False
    when: str | None = None


class LogSignature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way in which a cause shows itself.

    - `match`: any of these, in one line of the log, cleaned of colours, timestamps and quoting.
    - `near`: all of these within `within` lines of it, `unless`: none of these; `log`: all of these anywhere; `absent`:
      none of these anywhere.
    - `warns`: the line may be a warning or a status line and still be the cause (most are not).
    - `soft`: the text alone is no failure; it counts only where something else says that the work failed.
    - `sample`: the example with the lines that must be near it, where it has the meaning only together with them.
    - `weight`: how specific it is. An ordinary compile error is 20; a message that has one cause only is 80.
    - `vague`: other causes show the same text.
    - `when`: an expression over the machine's facts, for look-alikes; what the facts contradict is no match.
    """

    id: str
    match: tuple[str, ...]
    example: str
    sample: str = ""
    near: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    within: int = 40
    log: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    when: str | None = None
    warns: bool = False
    soft: bool = False
    weight: int = 80
    vague: bool = False


class CauseRow(NamedRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A root cause: the label, what it means, how to see it by hand, what to do, and what else it explains.

    `over` names the causes whose messages are mere consequences when this one is present. `running`: it shows itself
    where torch runs; no compiler stops for it. `nvidia`: it can only be so with a card of NVIDIA; with another's it is
    that the card is another's (`OTHER_VENDOR`).
    """

    title: str
    explanation: str
    by_hand: str
    fix: tuple[FixStep, ...]
    signature: tuple[LogSignature, ...]
    over: tuple[str, ...] = ()
    running: bool = False
    nvidia: bool = False
    links: tuple[str, ...] = ()
    family: str = ""


class LineRow(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a tool's line is told: what kind of line it is, whose, and how it looks."""

    kind: str
    tool: str
    match: tuple[str, ...]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    family: str
    cause: tuple[CauseRow, ...]
    terms: dict[str, str] = {}
    """Conditions with a name, for several steps."""


@cached
def causes() -> tuple[CauseRow, ...]:
    """Every cause known, family by family."""
    rows: list[CauseRow] = []
    for name in FAMILIES:
        file = decided(f"signatures/{name}", _File)
        rows += [msgspec.structs.replace(row, family=file.family) for row in file.cause]
    return tuple(rows)


@cached
def terms() -> dict[str, str]:
    return {name: means for each in FAMILIES for name, means in decided(f"signatures/{each}", _File).terms.items()}


class WordRow(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words of other languages and the English that stands for them in the signatures."""

    said: tuple[str, ...]
    means: str


class FactRow(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a fact shows itself: the first group of a pattern is its value. `{LINE}` stands for the name of a CUDA line.

    `flag`: it is only yes or no. `listed`: it is named with its line. `values`: what stands for another value.
    `told`: how a person says it, which counts where no program does; not behind `unless` in the same sentence, in which
    `{ASIDE}` stands for the words that all of them share.
    """

    name: str
    match: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    unless: str | None = None
    flag: bool = False
    listed: bool = False
    values: dict[str, str] = msgspec.field(default_factory=dict)


class _Lines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    aside: str
    row: tuple[LineRow, ...]
    word: tuple[WordRow, ...]
    fact: tuple[FactRow, ...]


def log_lines() -> tuple[LineRow, ...]:
    return decided("log_lines", _Lines).row


def log_facts() -> tuple[FactRow, ...]:
    return decided("log_lines", _Lines).fact


def aside_of(row: FactRow) -> str:
    """What, before a fact that a person tells, says that it is not theirs; nothing matches where nothing is meant."""
    return (row.unless or r"\b\B").replace("{ASIDE}", decided("log_lines", _Lines).aside)


def log_words() -> tuple[WordRow, ...]:
    return decided("log_lines", _Lines).word


def cause(label: str) -> CauseRow | None:
    return next((row for row in causes() if row.id == label), None)


class FixAction(str, Enum):
    JOBS = "jobs"
    RERUN = "rerun"
    VARIABLES = "variables"
    PATCH = "patch"


class Mechanical(NamedRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`text` says what is done, as it follows "I can"."""

    cause: str
    action: FixAction
    text: str
    divide: int = 1
    patches: tuple[str, ...] = ()


mechanical = rows("mechanical.toml", "row", Mechanical)


def of_cause(label: str) -> tuple[Mechanical, ...]:
    return tuple(row for row in mechanical() if row.cause == label)
