"""What PyTorch's setup.py hands on to CMake, and what has to be installed to build a release."""

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided
from rekindle.knowledge.torch.releases import torch_release


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


class _Tables(Row, frozen=True, kw_only=True):
    forwarded: tuple[Forwarded, ...]
    requirements: tuple[Requirement, ...]


@cached
def _tables() -> _Tables:
    return decided("setup_py", _Tables)


@cached
def forwarded() -> frozenset[str]:
    return frozenset(row.name for row in _tables().forwarded)


def requirements(torch: str, *, mkl: bool = False) -> tuple[str, ...]:
    """What pip is told to install before this release can be built; with `mkl`, MKL too."""
    release = torch_release(torch)
    minor = Version(release.minor)
    rows = [row.requirement for row in _tables().requirements if row.holds(minor) and (mkl or not row.mkl)]
    return (f"setuptools{release.setuptools.split()[0]}", *rows)
