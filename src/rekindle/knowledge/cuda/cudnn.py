"""cuDNN and the math libraries: which GPU code each release holds."""

from rekindle.core.texts import PackageText
from rekindle.core.untrusted import ProjectName
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.tables import Row, cached, rows
from rekindle.model.card import Capability, Target


class Cudnn(Row, frozen=True, kw_only=True):
    """One release. `targets` is what was found in its libraries; None when this exact release was not opened."""

    version: Version
    cuda_majors: tuple[int, ...]
    min_capability: Capability
    targets: tuple[Target, ...] | None
    packages: dict[PackageText, tuple[str, ...]]
    yanked: tuple[str, ...] = ()

    def serves(self, card: Capability) -> bool | None:
        """Does it hold native code for a card? None: this release was not opened. PTX does not count: a cuDNN that
        NVIDIA never tried on a card is not one to rely on."""
        if self.targets is None:
            return None
        return any(runs(target, card) is Runs.NATIVE for target in self.targets)


class CudnnFamily(Row, frozen=True, kw_only=True):
    """A run of releases that NVIDIA documents together, for the ones not on the package index."""

    first: Version
    last: Version
    cuda: str
    min_capability: Capability
    min_capability_cuda10: Capability | None = None


class MathLibrary(Row, frozen=True, kw_only=True):
    package: ProjectName
    version: Version
    library: str
    targets: tuple[Target, ...]

    @property
    def floor(self) -> Capability:
        return min(target.capability for target in self.targets if not target.ptx)


_releases = rows("cudnn.json", "releases", Cudnn)
families = rows("cudnn.json", "families", CudnnFamily)


@cached
def releases() -> tuple[Cudnn, ...]:
    return tuple(sorted(_releases(), key=lambda row: row.version))


@cached
def row_of(version: Version) -> Cudnn | None:
    """The row of a release by its three numbers; `8.7.0.84`, `8.7.0` and `8.7` are the same one."""
    return _by_number().get((*version.parts, 0, 0)[:3])


@cached
def _by_number() -> dict[tuple[int, ...], Cudnn]:
    return {row.version.parts[:3]: row for row in releases()}


math_libraries = rows("mathlibs.json", "libraries", MathLibrary)
