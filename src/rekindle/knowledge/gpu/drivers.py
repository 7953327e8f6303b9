"""Driver branches: which one a driver belongs to, and which ones drive a card."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.errors import UsageError
from rekindle.core.version import Version, typed
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.capability import Capability
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


class TypedDriver(msgspec.Struct, frozen=True, kw_only=True):
    version: Version
    note: str | None = None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The drivers that drive a set of cards: from `first` (None: any old one) to branch `last` (None: not ended)."""

    first: Version | None
    last: int | None
    source: str

    @property
    def empty(self) -> bool:
        return self.first is not None and self.last is not None and branch_of(self.first) > self.last

    def holds(self, driver: Version) -> bool:
        return not self.too_old(driver) and not self.too_new(driver)

    def too_old(self, driver: Version) -> bool:
        return self.first is not None and driver < self.first

    def too_new(self, driver: Version) -> bool:
        return self.last is not None and branch_of(driver) > self.last


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


def typed_driver(text: str, system: str) -> TypedDriver:
    """A driver as people write it: `550.54.14`, or a bare branch, which means its newest release."""
    # As nvidia-smi shows it, with the CUDA beside it, or as a branch: `R550`.
    plain = re.sub(r"(?i)^(nvidia[- ]?)?(driver )?(version:? )?r?|[ (,|]*cuda.*$", "", text.strip()).strip()
    version = typed(plain, "`--driver`", "550.54.14")
    if version.major >= 1000:
        raise UsageError(f"`{text[:40]}` is not a driver version", hint=_of_cuda(version.major, system))
    if len(version.parts) > 1 or version.major < 100:
        return TypedDriver(version=version)
    rows = decided("driver_branches", _BranchTables).newest
    row = next((row for row in rows if row.branch == version.major), None)
    if row is None:
        return TypedDriver(version=version, note=f"driver {text} is taken as {version}, the first of that number")
    newest = row.windows if system == "windows" else row.linux
    return TypedDriver(version=newest, note=f"driver {text} is taken as {newest}, the newest of branch R{row.branch}")


def _of_cuda(number: int, system: str) -> str:
    """PyTorch says `found version 11040` of a driver that ends with CUDA 11.4."""
    cuda = Version(f"{number // 1000}.{number % 1000 // 10}")
    row = next((row for row in toolkits.toolkits() if row.version == cuda), None)
    full = row.full_driver(system) if row else None
    if full is None:
        return "`nvidia-smi` shows the driver's version, for example 550.54.14"
    return f"that is the driver's CUDA ({cuda}): `nvidia-smi` shows its own version; the branch is R{branch_of(full)}"


def packages(branch: int, system: str, distribution: str | None = None) -> tuple[DriverPackage, ...]:
    """How to install a branch: on one distribution, or on each that is known."""
    rows = decided("driver_packages", dict[str, tuple[DriverPackage, ...]])["package"]
    return tuple(
        row
        for row in rows
        if row.branch == branch and row.system == system and distribution in (None, row.distribution)
    )


@cached
def window(capability: Capability, system: str, *, last_branch: str | None = None) -> Window:
    """The drivers that drive a card. It is known to them from the CUDA release that first compiled for it."""
    facts = capabilities.facts(capability)
    first = toolkits.first_toolkit_for(capability)
    since = facts.first_cuda if facts else None
    # The tables of toolkits begin at 10.2: a card older than that has no lower end that matters here.
    known_since = first if first and since and first.version == since.major_minor else None
    last = last_branch or (facts.last_driver_branch if facts else None)
    return Window(
        first=known_since.full_driver(system) if known_since else None,
        last=int(last) if last else None,
        source=facts.source if facts else "",
    )


def common(windows: list[Window]) -> Window:
    """The drivers that drive all of these cards; `empty` when there are none."""
    firsts = [each.first for each in windows if each.first is not None]
    lasts = [each.last for each in windows if each.last is not None]
    return Window(
        first=max(firsts) if firsts else None,
        last=min(lasts) if lasts else None,
        source="; ".join(dict.fromkeys(each.source for each in windows if each.source)),
    )
