"""Which packages make up a private toolchain, by provider, and whose terms hold for them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided


class DebianSet(Row, frozen=True, kw_only=True):
    """The packages of one tool in one release of a distribution."""

    id: str
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

    def needs(self, package: str) -> bool:
        return not any(fnmatchcase(package, pattern) for pattern in self.leave_out)


class IndexSet(Row, frozen=True, kw_only=True):
    """The wheels of one tool in the Python index. `components` are those of a toolkit's own list of packages;
    `packages` are names, with `{cuda}` for the major number of the CUDA that they are made for."""

    id: str
    tool: str
    first: Version
    components: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    main: str = ""
    """The package whose version is the tool's."""
    layout: str = "wheel"
    licence: str = ""

    def serves(self, version: Version | None) -> bool:
        return version is None or version >= self.first


class LicenceTerms(Row, frozen=True, kw_only=True):
    """Terms that somebody must accept before the download."""

    id: str
    title: str
    address: str
    summary: str


class _Tables(msgspec.Struct, frozen=True):
    debian: tuple[DebianSet, ...]
    index: tuple[IndexSet, ...]
    licence: tuple[LicenceTerms, ...]


@cached
def _tables() -> _Tables:
    return decided("toolchains", _Tables)


def debian_sets() -> tuple[DebianSet, ...]:
    return _tables().debian


def index_sets() -> tuple[IndexSet, ...]:
    return _tables().index


def licence_terms() -> tuple[LicenceTerms, ...]:
    return _tables().licence
