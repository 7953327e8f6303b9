"""Driver branches: which one a driver belongs to, and how a system installs one."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided


class _Branches(Row, frozen=True, kw_only=True):
    name: str
    branches: tuple[int, ...]


class _Newest(Row, frozen=True, kw_only=True):
    branch: int
    linux: Version
    windows: Version


class _BranchTables(msgspec.Struct, frozen=True):
    branches: tuple[_Branches, ...]
    newest: tuple[_Newest, ...]


class DriverPackage(Row, frozen=True, kw_only=True):
    """How one system installs a driver branch, and keeps it."""

    id: str
    system: str
    distribution: str
    branch: int
    install: tuple[str, ...]
    hold: tuple[str, ...]


@cached
def branches() -> tuple[int, ...]:
    """Every branch the tables know, oldest first."""
    rows = decided("driver_branches", _BranchTables).branches
    return tuple(sorted({branch for row in rows for branch in row.branches}))


@cached
def branch_of(driver: Version) -> int:
    """472.50 belongs to branch R470; a driver newer than the tables to a branch of its own first number."""
    known = [branch for branch in branches() if branch <= driver.major]
    if not known or driver.major > branches()[-1]:
        return driver.major
    return known[-1]


def newest_of(branch: int, counting: str) -> Version | None:
    """The newest release of a branch that the tables name."""
    row = next((row for row in decided("driver_branches", _BranchTables).newest if row.branch == branch), None)
    return None if row is None else row.windows if counting == "windows" else row.linux


def packages(branch: int, system: str, distribution: str | None = None) -> tuple[DriverPackage, ...]:
    """How to install a branch: on one distribution, or on each that is known."""
    rows = decided("driver_packages", dict[str, tuple[DriverPackage, ...]])["package"]
    return tuple(
        row
        for row in rows
        if row.branch == branch and row.system == system and distribution in (None, row.distribution)
    )
