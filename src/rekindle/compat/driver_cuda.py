"""Does this driver run programs of this CUDA? Fully, native code only (minor-version compatibility), or not at all."""

from __future__ import annotations

import msgspec

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.errors import UnknownName
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.cuda.toolkits import Toolkit
from rekindle.knowledge.tables import cached
from rekindle.model.driver import Driver

_SOURCE = "NVIDIA: CUDA release notes, minimum drivers and minor-version compatibility"


class DriverNeed(msgspec.Struct, frozen=True, kw_only=True):
    """The drivers that run a CUDA: native code from `floor` on, everything (its PTX too) from `full` on."""

    floor: Version
    full: Version
    newest: Version | None = None
    """The driver of the CUDA's last update, where that is newer."""

    def words(self, *, jit: bool = False) -> str:
        """The one plain line: the driver that native code needs; for code that is reached through PTX the full one."""
        return f"{spelled(self.full if jit else self.floor)} or newer"

    @property
    def detail(self) -> str:
        """The same with the releases behind it."""
        later = f" ({self.newest} with its last update)" if self.newest and self.newest > self.full else ""
        if self.floor >= self.full:
            return f"{spelled(self.full)} or newer{later}"
        return f"{spelled(self.floor)} or newer for native code; {spelled(self.full)} or newer{later} for its PTX too"


def spelled(driver: Version) -> str:
    """NVIDIA names only the branch of some: `R580`."""
    return str(driver) if "." in driver.text else f"R{driver}"


@cached
def need(cuda: Version, counting: str) -> DriverNeed | Unknown:
    """Which drivers run programs of this CUDA."""
    try:
        row = toolkits.toolkit(cuda)
    except UnknownName as unknown:
        return Unknown(missing=unknown.message)
    full = _full(row, counting)
    if full is None:
        return Unknown(missing=f"which driver CUDA {row.version} needs on {counting.capitalize()} is not in the data")
    floor = _floor(row, counting) or full
    last = row.min_drivers[-1] if row.min_drivers else None
    return DriverNeed(
        floor=floor, full=full, newest=(last.windows if counting == "windows" else last.linux) if last else None
    )


def whole(driver: Version, counting: str) -> Version:
    """`450.80` is 450.80.02 cut short: the newest that NVIDIA names a toolkit with, of those that begin so."""
    own = [each for row in toolkits.toolkits() for each in row.min_drivers]
    named = [each.windows if counting == "windows" else each.linux for each in own]
    named += [_floor(row, counting) for row in toolkits.toolkits()]
    longer = [each for each in named if each and len(each.parts) > len(driver.parts) and each.starts_with(driver)]
    return max(longer, default=driver)


def runs(driver: Driver, cuda: Version) -> Judgement:
    wanted = need(cuda, driver.counting)
    if isinstance(wanted, Unknown):
        return wanted
    if driver.version >= wanted.full:
        return Fits()
    if driver.version >= wanted.floor:
        lost = f"a driver older than {spelled(wanted.full)} compiles none of the PTX of CUDA {cuda.major_minor}"
        return Fits(loses=(f"{lost}: only native code runs",))
    best = newest_native(driver)
    least = spelled(wanted.floor)
    changes = [Alternative(what="driver", value=least, text=f"update the driver to {least} or newer")]
    if best is not None:
        changes.append(Alternative(what="cuda", value=str(best), text=f"take CUDA {best} or older"))
    return Clash(
        sentence=f"driver {driver} does not run CUDA {cuda.major_minor}: it needs {wanted.words()}",
        source=_SOURCE,
        changes=tuple(changes),
    )


@cached
def newest_full(driver: Driver) -> Version | None:
    """The newest CUDA that this driver runs fully."""
    rows = reversed(toolkits.toolkits())
    return next((row.version for row in rows if (full := _full(row, driver.counting)) and full <= driver.version), None)


@cached
def newest_native(driver: Driver) -> Version | None:
    """The newest CUDA whose native code this driver runs: minor-version compatibility stays within one major."""
    rows = reversed(toolkits.toolkits())
    found = (row.version for row in rows if (floor := _floor(row, driver.counting)) and floor <= driver.version)
    return next(found, newest_full(driver))


def newest_ptx(driver: Driver) -> Version | None:
    """The newest PTX version this driver compiles; None when the tables cannot tell."""
    cuda = newest_full(driver)
    return toolkits.toolkit(cuda).ptx_isa if cuda else None


def is_newer_than_tables(driver: Version) -> bool:
    """A driver branch beyond the last one the tables name."""
    branches = [int(row.driver_branch) for row in toolkits.toolkits() if row.driver_branch]
    return bool(branches) and driver.major > max(branches)


def _full(row: Toolkit, counting: str) -> Version | None:
    """The driver from which everything works, JIT included: the first release's minimum."""
    first = row.min_drivers[0] if row.min_drivers else None
    own = (first.windows if counting == "windows" else first.linux) if first else None
    # NVIDIA gives only the branch for 13.x on Windows, and for 13.3 and later.
    return own or (Version(row.driver_branch) if row.driver_branch else None)


def _floor(row: Toolkit, counting: str) -> Version | None:
    return row.minor_floor_windows if counting == "windows" else row.minor_floor_linux
