"""Which fixes Rekindle may carry out itself, with consent, and how."""

from __future__ import annotations

from enum import Enum

from rekindle.knowledge.tables import NamedRow, rows


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
