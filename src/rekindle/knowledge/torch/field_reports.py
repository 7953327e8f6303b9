"""What owners of cards sent: a wheel, by its hash, on a real card. Written by `tools/observe/field_reports.py`."""

from __future__ import annotations

from collections.abc import Collection

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, rows


class FieldRow(Row, frozen=True, kw_only=True):
    """One wheel on one card. `state` is that of the checks on the card: PASS, WARN, UNVERIFIED or FAIL."""

    report: str
    """SHA-256 of the owner's whole report."""
    wheel: str
    wheel_sha256: str
    torch: str
    system: str
    machine: str
    card: str
    capability: Capability
    driver: Version | None = None
    cuda: Version | None = None
    passed: int
    failed: tuple[str, ...] = ()
    state: str


_rows = rows("field_reports.json", "reports", FieldRow)


def field_reports(torch: str, capabilities: Collection[Capability], system: str) -> tuple[FieldRow, ...]:
    """What was seen of this release on such a card, the newest first. A local part (`+cu118`) is disregarded."""
    wanted = torch.partition("+")[0]
    found = [
        row
        for row in _rows()
        if row.torch.partition("+")[0] == wanted and row.capability in capabilities and row.system == system
    ]
    return tuple(sorted(found, key=lambda row: row.observed_at, reverse=True))


def describe(row: FieldRow) -> str:
    """`ran on Tesla K40c with driver 470.256.02: 26 checks passed (2026-11-20)`."""
    driver = f" with driver {row.driver}" if row.driver else ""
    what = f"{row.passed} checks passed" + (f", failed: {', '.join(row.failed)}" if row.failed else "")
    return f"{row.wheel} on {row.card}{driver}: {what} ({row.observed_at})"
