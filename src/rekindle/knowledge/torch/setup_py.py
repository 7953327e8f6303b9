"""What PyTorch's setup.py hands on to CMake, and what has to be installed to build a release."""

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, rows
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
    return (f"setuptools{release.setuptools.split()[0]}", cmake, *rows)


def with_mkl(*, profile: str, system: str, arch: str) -> bool:
    """Whether a build takes MKL from pip where the machine brings none: there is none for ARM.

    On Windows every profile does: nothing there brings another BLAS, and MKL chooses its code by the processor.
    """
    return arch == "x86_64" and (profile == "fast" or system == "windows")
