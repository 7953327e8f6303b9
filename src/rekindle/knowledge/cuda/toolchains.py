"""Which packages make up a private toolchain, by provider, and whose terms hold for them."""

from __future__ import annotations

from collections.abc import Container
from fnmatch import fnmatchcase

import msgspec

from rekindle.core.command import Command, rekindle
from rekindle.core.version import Version
from rekindle.knowledge.cuda import cudnn
from rekindle.knowledge.tables import NamedRow, Row, cached, observed, rows
from rekindle.model.platform import Platform


class DebianSet(NamedRow, frozen=True, kw_only=True):
    """The packages of one tool in one release of a distribution."""

    tool: str
    version: Version
    distribution: str
    suite: str
    components: tuple[str, ...]
    roots: tuple[str, ...]
    sources: tuple[str, ...]
    leave_out: tuple[str, ...] = ()
    layout: str
    licence: str = ""
    tried: tuple[str, ...]
    """The processors for which it was installed once, for real."""

    def serves(self, version: Version | None) -> bool:
        """`11.8` and `11.8.89` both mean the row of 11.8; so does `11`."""
        return version is None or version.starts_with(self.version) or self.version.starts_with(version)

    def needs(self, package: str) -> bool:
        return not any(fnmatchcase(package, pattern) for pattern in self.leave_out)


class IndexSet(NamedRow, frozen=True, kw_only=True):
    """The wheels of one tool in the Python index. `components` are those of a toolkit's own list of packages;
    `packages` are names, with `{cuda}` for the major number of the CUDA that they are made for."""

    tool: str
    first: Version
    components: tuple[str, ...] = ()
    linux_only: tuple[str, ...] = ()
    """Components that have no wheel for Windows."""
    packages: tuple[str, ...] = ()
    main: str
    """The package whose version is the tool's; a pattern."""
    layout: str = "wheel"
    licence: str = ""

    def serves(self, version: Version | None) -> bool:
        return version is None or version >= self.first


class RedistribSet(NamedRow, frozen=True, kw_only=True):
    """NVIDIA's lists of archives: where they are, which releases have one, what a build needs of them."""

    tool: str
    address: str
    labels: tuple[str, ...] = ()
    """Releases that have a list. None: any release of three numbers may."""
    components: tuple[str, ...]
    needed: tuple[str, ...] = ()
    """Those without which the tool is not complete."""
    instead: dict[str, str] = msgspec.field(default_factory=dict)
    """Older lists have the files of a component in another one: `cuda_profiler_api.h` came with nvprof before 11.8."""
    main: str
    licence: str = ""

    def chosen(self, have: Container[str]) -> tuple[str, ...]:
        """What a build takes of a list that has these components."""
        names = (name if name in have else self.instead.get(name, name) for name in self.components)
        return tuple(dict.fromkeys(name for name in names if name in have))

    def lacks(self, have: Container[str]) -> tuple[str, ...]:
        """What a build needs and the list does not have under any name."""
        return tuple(name for name in self.needed if name not in have and self.instead.get(name, name) not in have)

    @property
    def first(self) -> str:
        return min(self.labels, key=Version) if self.labels else "its first release"

    def label_of(self, version: Version) -> str | None:
        """The name of the list of a release: `11.8` has `11.8.0`."""
        fitting = [label for label in self.labels if Version.parse(label).starts_with(version)]
        if fitting:
            return max(fitting, key=Version)
        return ".".join(map(str, version.parts[:3])) if len(version.parts) >= 3 and not self.labels else None


class RedistribList(Row, frozen=True, kw_only=True):
    """One of NVIDIA's lists as it was published: a list with another digest names other archives."""

    product: str
    release: str
    released: str
    archives: int
    digest: str
    """SHA-256 over platform, path and hash of every archive."""


class CondaSet(NamedRow, frozen=True, kw_only=True):
    """The packages of one tool in a conda channel. `label` may name a part of the channel, with `{cuda}` in it."""

    tool: str
    address: str
    channel: str
    label: str = ""
    first: Version
    below: Version | None = None
    packages: tuple[str, ...]
    instead: dict[str, str] = msgspec.field(default_factory=dict)
    """Under which name an older channel has a package."""
    main: str
    licence: str = ""

    def serves(self, version: Version | None) -> bool:
        return version is None or (version >= self.first and (self.below is None or version < self.below))


class MsvcComponent(Row, frozen=True, kw_only=True):
    """Under which names Microsoft's installer has one MSVC toolset and a Windows SDK that goes with it."""

    toolset: Version
    component: str
    sdk: str
    bootstrapper: str


class LicenceTerms(NamedRow, frozen=True, kw_only=True):
    """Terms that somebody must accept before the download."""

    title: str
    address: str
    summary: str


debian_sets = rows("toolchains.toml", "debian", DebianSet)
index_sets = rows("toolchains.toml", "index", IndexSet)
redistrib_sets = rows("toolchains.toml", "redistrib", RedistribSet)
conda_sets = rows("toolchains.toml", "conda", CondaSet)
msvc_components = rows("toolchains.toml", "msvc", MsvcComponent)
licence_terms = rows("toolchains.toml", "licence", LicenceTerms)


@cached
def redistrib_list(product: str, release: str) -> RedistribList | None:
    """The published list of a release, where a copy of it was read."""
    rows = observed("redistrib_lists", dict[str, tuple[RedistribList, ...]])["lists"]
    return next((row for row in rows if (row.product, row.release) == (product, release)), None)


@cached
def providers_of(tool: str, version: Version, place: Platform) -> tuple[tuple[str, bool], ...]:
    """Who may have a tool for a kind of computer, as far as the tables know, and whether that was ever tried.

    Which distribution a Linux is does not show here: `debian` stands for a computer whose apt reaches that release.
    """
    found = [
        ("index", True)
        for row in index_sets()
        if row.tool == tool and row.serves(version) and _index_has(tool, version, place)
    ]
    if place.system == "linux" and place.arch in ("x86_64", "aarch64"):
        rows = [row for row in debian_sets() if row.tool == tool and row.serves(version)]
        found += [("debian", any(place.arch in row.tried for row in rows))] if rows else []
    if any(row.tool == tool and row.label_of(version) for row in redistrib_sets()):
        found.append(("redistrib", False))
    if any(row.tool == tool and row.serves(version) for row in conda_sets()):
        found.append(("conda", False))
    return tuple(dict.fromkeys(found))


def _index_has(tool: str, version: Version, place: Platform) -> bool:
    if tool == "mkl":
        return place.arch == "x86_64"
    if tool != "cudnn":
        return tool == "cuda" or place.system == "linux"
    row = cudnn.row_of(version)
    return (
        place.arch == "x86_64" and row is not None and any(place.system in systems for systems in row.packages.values())
    )


def install_gcc(cuda: Version) -> Command:
    """The command that brings the newest GCC that this CUDA takes and that starts where it is run."""
    return rekindle("toolchain", "install", "gcc", "--cuda", str(cuda.major_minor), system="linux")
