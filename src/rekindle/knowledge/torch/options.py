"""Build options and environment variables that really exist, per PyTorch release, and what is known of false ones."""

import msgspec

from rekindle.core.untrusted import PipRequirement, checked
from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided, observed, rows
from rekindle.knowledge.torch.releases import torch_release
from rekindle.model.platform import Platform


class OptionRange(msgspec.Struct, frozen=True, kw_only=True):
    """A run of minor releases in which the option had this default and condition."""

    first: str
    last: str
    default: str | None = None
    condition: str | None = None
    otherwise: str | None = None

    def holds(self, minor: Version) -> bool:
        return Version(self.first) <= minor <= Version(self.last)


class Option(Row, frozen=True, kw_only=True):
    """`kind` is `option` for a CMake option, `environment` for a variable that only the environment carries."""

    name: str
    kind: str
    ranges: tuple[OptionRange, ...]
    becomes: str | None = None

    def at(self, minor: Version) -> OptionRange | None:
        return next((run for run in self.ranges if run.holds(minor.major_minor)), None)


class OptionVerdict(Row, frozen=True, kw_only=True):
    """What is known of an option people set: `real`, `never-existed`, `no-effect`, `limited` to some releases."""

    name: str
    verdict: str
    detail: str
    instead: str | None = None
    first: str | None = None
    last: str | None = None


@cached
def options() -> dict[str, Option]:
    return {row.name: row for row in observed("torch_options", dict[str, tuple[Option, ...]])["options"]}


@cached
def verdicts() -> dict[str, OptionVerdict]:
    return {row.name: row for row in decided("option_verdicts", dict[str, tuple[OptionVerdict, ...]])["verdicts"]}


def exists(name: str, torch: str) -> bool:
    """Does this release read an option or variable of that name?"""
    option = options().get(name)
    return option is not None and option.at(Version(torch)) is not None


def nearest(name: str, torch: str, count: int = 3) -> tuple[str, ...]:
    """Real options of that release whose names look like this one."""
    import difflib

    names = [key for key in options() if exists(key, torch)]
    return tuple(difflib.get_close_matches(name, names, n=count, cutoff=0.7))


class OptionParent(Row, frozen=True, kw_only=True):
    """An option without which its children are off."""

    name: str
    children: tuple[str, ...]


@cached
def parents() -> dict[str, tuple[str, ...]]:
    """The children of each option that others depend on."""
    rows = decided("option_parents", dict[str, tuple[OptionParent, ...]])["parent"]
    return {row.name: row.children for row in rows}


class Forwarded(Row, frozen=True, kw_only=True):
    """A variable that setup.py hands on although it does not begin with USE_, BUILD_ or CMAKE_."""

    name: str


class Requirement(Row, frozen=True, kw_only=True):
    name: str
    requirement: str
    why: str
    first: str | None = None
    last: str | None = None
    mkl: bool = False
    """Only where MKL comes from pip."""

    def holds(self, minor: Version) -> bool:
        return (self.first is None or Version(self.first) <= minor) and (
            self.last is None or minor <= Version(self.last)
        )


_forwarded = rows("setup_py.toml", "forwarded", Forwarded)
_requirements = rows("setup_py.toml", "requirements", Requirement)


@cached
def forwarded() -> frozenset[str]:
    return frozenset(row.name for row in _forwarded())


def requirements(torch: str, *, mkl: bool = False) -> tuple[str, ...]:
    """What pip installs before this release can be built; with `mkl`, MKL too.

    The one list: a plan writes it down, a bundle downloads it, a build and its script install it.
    """
    release = torch_release(torch)
    minor = Version(release.minor)
    cmake = f"cmake>={release.min_cmake}" + ("" if release.cmake4_unpatched else ",<4")
    rows = [row.requirement for row in _requirements() if row.holds(minor) and (mkl or not row.mkl)]
    every = (f"setuptools{release.setuptools.split()[0]}", cmake, *rows)
    return tuple(str(checked(PipRequirement, each, "the table of releases")) for each in every)


def with_mkl(profile: str, place: Platform) -> bool:
    """Whether a build takes MKL from pip where the machine brings none: there is none for ARM.

    On Windows every profile does: nothing there brings another BLAS, and MKL chooses its code by the processor.
    """
    return place.arch == "x86_64" and (profile == "fast" or place.system == "windows")
