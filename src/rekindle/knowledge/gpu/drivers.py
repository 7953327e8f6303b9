"""Driver branches: which one a driver belongs to, how a system installs one, and from which on a card is listed."""

from __future__ import annotations

from rekindle.core.version import Version
from rekindle.knowledge.tables import NamedRow, Row, cached, observed, rows


class _Branches(Row, frozen=True, kw_only=True):
    name: str
    branches: tuple[int, ...]


class _Newest(Row, frozen=True, kw_only=True):
    branch: int
    linux: Version
    windows: Version


class DriverPackage(NamedRow, frozen=True, kw_only=True):
    """How one system installs a driver branch, and keeps it."""

    system: str
    distribution: str
    branch: int
    install: tuple[str, ...]
    hold: tuple[str, ...]


_branches = rows("driver_branches.toml", "branches", _Branches)
_newest = rows("driver_branches.toml", "newest", _Newest)
_packages = rows("driver_packages.toml", "package", DriverPackage)


@cached
def branches() -> tuple[int, ...]:
    """Every branch the tables know, oldest first."""
    return tuple(sorted({branch for row in _branches() for branch in row.branches}))


@cached
def branch_of(driver: Version) -> int:
    """472.50 belongs to branch R470; a driver newer than the tables to a branch of its own first number."""
    known = [branch for branch in branches() if branch <= driver.major]
    if not known or driver.major > branches()[-1]:
        return driver.major
    return known[-1]


def of_windows(four_parts: str) -> str | None:
    """Windows numbers a driver `27.21.14.7250`: the last five digits are NVIDIA's 472.50. Its own begin with 100."""
    first, *parts = four_parts.split(".")
    digits = "".join(part.rjust(4, "0") for part in parts[-2:]) if len(parts) == 3 and len(first) < 3 else ""
    return f"{int(digits[-5:-2])}.{digits[-2:]}" if digits.isascii() and digits.isdigit() and len(digits) >= 5 else None


def newest_of(branch: int, counting: str) -> Version | None:
    """The newest release of a branch that the tables name."""
    row = next((row for row in _newest() if row.branch == branch), None)
    return None if row is None else row.windows if counting == "windows" else row.linux


def meant(driver: Version, counting: str) -> Version:
    """A bare branch, and the `580.00` that a Jetson's system reports, are the newest of that branch."""
    return driver if any(driver.parts[1:]) else newest_of(driver.major, counting) or driver


def packages(branch: int, system: str, distribution: str | None = None) -> tuple[DriverPackage, ...]:
    """How to install a branch: on one distribution, or on each that is known."""
    fitting = (row for row in _packages() if row.branch == branch and row.system == system)
    return tuple(row for row in fitting if distribution in (None, row.distribution))


class ListedCard(Row, frozen=True, kw_only=True):
    """A device that the oldest list lacks, and the first driver for Linux whose list has it."""

    pci_id: str
    name: str
    driver: Version


def listed_from(pci_id: str | None) -> ListedCard | None:
    """`10de:2d04` or `2d04`. None: the card is older than the lists, or newer than the data."""
    return _cards().get((pci_id or "").lower().removeprefix("10de:"))


@cached
def _cards() -> dict[str, ListedCard]:
    rows = observed("driver_lists", dict[str, tuple[ListedCard, ...]])["cards"]
    return {row.pci_id: row for row in rows}
