"""cuDNN and the math libraries: which GPU code each release holds."""

from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolkits import toolkit
from rekindle.knowledge.gpu.capability import Capability, Runs, Target, runs
from rekindle.knowledge.tables import Row, cached, rows


class Cudnn(Row, frozen=True, kw_only=True):
    """One release. `targets` is what was found in its libraries; None when this exact release was not opened."""

    version: Version
    cuda_majors: tuple[int, ...]
    min_capability: Capability
    targets: tuple[Target, ...] | None
    packages: dict[str, tuple[str, ...]]
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
    package: str
    version: Version
    library: str
    targets: tuple[Target, ...]

    @property
    def floor(self) -> Capability:
        return min(target.capability for target in self.targets if not target.ptx)


_releases = rows("cudnn.json", "releases", Cudnn)
_families = rows("cudnn.json", "families", CudnnFamily)


@cached
def releases() -> tuple[Cudnn, ...]:
    return tuple(sorted(_releases(), key=lambda row: row.version))


@cached
def serves(version: Version, card: Capability, *, cuda_major: int = 11) -> bool | None:
    """Does cuDNN `version` hold code for this card? None when it is newer than the tables or unknown."""
    row = row_of(version)
    if row is not None:
        return row.serves(card) if row.targets is not None else _between(row.version, card)
    short = Version(".".join(str(part) for part in version.parts[:3]))
    family = next((row for row in _families() if row.first <= short <= row.last), None)
    if family is None or short > releases()[-1].version:
        return None
    floor = family.min_capability_cuda10 if cuda_major == 10 and family.min_capability_cuda10 else family.min_capability
    return card >= floor


@cached
def last_for(card: Capability) -> Version | None:
    """The last cuDNN that holds code for a card; None when the newest still does, or when none ever did."""
    rows = releases()
    if serves(rows[-1].version, card):
        return None
    return next((row.version for row in reversed(rows) if serves(row.version, card)), None)


def same_release(found: Version, wanted: Version) -> bool:
    """Is the cuDNN that was found the one that is wanted? A header says 8.7.0, an archive is called 8.7.0.84.

    Three numbers name a release: a bare `8` or `8.7` off a file's name says too little to be 8.7.0.
    """
    asked = wanted.parts[:3]
    return found.parts[: len(asked)] == asked


@cached
def row_of(version: Version) -> Cudnn | None:
    """The row of a release by its three numbers; `8.7.0.84`, `8.7.0` and `8.7` are the same one."""
    return _by_number().get((*version.parts, 0, 0)[:3])


@cached
def _by_number() -> dict[tuple[int, ...], Cudnn]:
    return {row.version.parts[:3]: row for row in releases()}


math_libraries = rows("mathlibs.json", "libraries", MathLibrary)


@cached
def math_serves(cuda: Version, card: Capability) -> bool | None:
    """Do cuBLAS, cuFFT, cuSOLVER, cuSPARSE and cuRAND of a toolkit hold code for a card? None: it is not known.

    They were opened for the first and last toolkit of each major, so their floor is known for all of it; upwards they
    reach as far as their toolkit does. On a card newer than that their PTX may run: that was never tried.
    """
    rows = [row for row in math_libraries() if row.package.endswith(f"-cu{cuda.major}")]
    if cuda.major >= 13:
        rows = [row for row in math_libraries() if "-cu1" not in row.package]
    if not rows:
        return None
    if card < max(row.floor for row in rows):
        return False
    return True if toolkit(cuda).compiles_for(card) else None


def _between(version: Version, card: Capability) -> bool | None:
    """For a release that was not opened: what both opened neighbours say, if they agree."""
    opened = [row for row in releases() if row.targets is not None]
    below = next((row for row in reversed(opened) if row.version < version), None)
    above = next((row for row in opened if row.version > version), None)
    answers = {row.serves(card) for row in (below, above) if row is not None}
    return answers.pop() if len(answers) == 1 else None
