"""cuDNN and the math libraries: which GPU code each release holds."""

from __future__ import annotations

import msgspec

from rekindle.knowledge.capability import Capability, Runs, Target, runs
from rekindle.knowledge.tables import Row, cached, observed
from rekindle.version import Version


class Cudnn(Row, frozen=True, kw_only=True):
    """One release. `targets` is what was found in its libraries; None when this exact release was not opened."""

    version: Version
    cuda_majors: tuple[int, ...]
    min_capability: Capability
    targets: tuple[Target, ...] | None
    packages: dict[str, tuple[str, ...]]
    yanked: tuple[str, ...] = ()

    def serves(self, card: Capability) -> bool:
        if self.targets is None:
            return card >= self.min_capability
        return any(runs(target, card) is not Runs.NO for target in self.targets)


class CudnnFamily(Row, frozen=True, kw_only=True):
    """A run of releases that NVIDIA documents together, for the ones not on the package index."""

    first: Version
    last: Version
    cuda: str
    min_capability: Capability
    min_capability_cuda10: Capability | None = None


class MathLibrary(Row, frozen=True, kw_only=True):
    package: str
    version: Version
    library: str
    targets: tuple[Target, ...]

    def serves(self, card: Capability) -> bool:
        return any(runs(target, card) is not Runs.NO for target in self.targets)


class _Tables(msgspec.Struct, frozen=True):
    releases: tuple[Cudnn, ...]
    families: tuple[CudnnFamily, ...]


@cached
def _tables() -> _Tables:
    return observed("cudnn", _Tables)


def releases() -> tuple[Cudnn, ...]:
    return tuple(sorted(_tables().releases, key=lambda row: row.version))


def serves(version: Version, card: Capability, *, cuda_major: int = 11) -> bool | None:
    """Does cuDNN `version` hold code for this card? None when it is newer than the tables or unknown."""
    exact = next((row for row in releases() if row.version == version), None)
    if exact:
        return exact.serves(card)
    short = Version(".".join(str(part) for part in version.parts[:3]))
    near = [row for row in releases() if row.version.starts_with(short)]
    if near:
        return near[-1].serves(card)
    family = next((row for row in _tables().families if row.first <= short <= row.last), None)
    if family is None:
        return None
    floor = family.min_capability_cuda10 if cuda_major == 10 and family.min_capability_cuda10 else family.min_capability
    return card >= floor


def last_for(card: Capability) -> Version | None:
    """The last cuDNN that holds code for a card; None when the newest still does, or when none ever did."""
    rows = releases()
    if rows[-1].serves(card):
        return None
    return next((row.version for row in reversed(rows) if row.serves(card)), None)


def row_of(version: Version) -> Cudnn | None:
    short = Version(".".join(str(part) for part in version.parts[:3]))
    return next((row for row in reversed(releases()) if row.version == version or row.version.starts_with(short)), None)


@cached
def math_libraries() -> tuple[MathLibrary, ...]:
    return observed("mathlibs", dict[str, tuple[MathLibrary, ...]])["libraries"]


def math_serves(cuda_major: int, card: Capability) -> bool | None:
    """Do cuBLAS, cuFFT, cuSOLVER, cuSPARSE and cuRAND of a CUDA major hold code for a card? None: not scanned."""
    suffix = f"-cu{cuda_major}" if cuda_major < 13 else ""
    rows = [row for row in math_libraries() if row.package.endswith(suffix) and (suffix or "-cu1" not in row.package)]
    return all(row.serves(card) for row in rows) if rows else None
