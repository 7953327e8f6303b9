"""Which libraries may be put into a wheel, where they come from, and under whose licence."""

from __future__ import annotations

from fnmatch import fnmatchcase

from rekindle.knowledge.cuda.libraries import matches
from rekindle.knowledge.tables import Row, cached, decided


class Redistribution(Row, frozen=True, kw_only=True):
    """`bundle` is `yes`, `given` (only from a folder that was named), `python` (Python has it) or `no`."""

    id: str
    system: str
    names: tuple[str, ...]
    bundle: str
    packages: tuple[str, ...]
    licence: str
    where: str

    def allows(self, package: str) -> bool:
        return any(fnmatchcase(package, pattern) for pattern in self.packages)


@cached
def _rows() -> tuple[Redistribution, ...]:
    return decided("redistribution", dict[str, tuple[Redistribution, ...]])["library"]


def all_terms(system: str) -> tuple[Redistribution, ...]:
    return tuple(row for row in _rows() if row.system == system)


def terms(library: str, system: str) -> Redistribution | None:
    """What holds for a library; None when nobody has looked, and then nothing is fetched for it."""
    for row in _rows():
        if row.system == system and any(matches(library, name, system) for name in row.names):
            return row
    return None
