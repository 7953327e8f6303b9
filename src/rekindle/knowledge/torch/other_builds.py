"""Builds of PyTorch that others make: conda-forge's, and wheels that people built and share.

A shared wheel is listed with who built it, and never recommended silently.
"""

from __future__ import annotations

from rekindle.core.untrusted import PipRequirement
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Target
from rekindle.knowledge.tables import NamedRow, Row, rows
from rekindle.knowledge.torch.releases import parse_arch_list


class CondaBuild(Row, frozen=True, kw_only=True):
    """One build of the recipe. `cudnn` is what it pins (`9`, `9.10`); conda chooses within that when it installs."""

    torch: str
    system: str
    machine: str
    cuda: Version
    arch_list: str
    pythons: tuple[str, ...]
    glibc: Version | None = None
    cudnn: str | None = None

    @property
    def targets(self) -> tuple[Target, ...]:
        return parse_arch_list(self.arch_list)


conda_builds = rows("conda_forge.json", "builds", CondaBuild)


class CommunityWheel(NamedRow, frozen=True, kw_only=True):
    """`sha256` None: the file has not been opened by us."""

    builder: str
    page: str
    link: str | None = None
    """Where the file itself is."""
    torch: str
    python: str
    system: str
    cuda: Version
    targets: tuple[Target, ...]
    blas: str | None = None
    cpu_floor: str | None = None
    sha256: str | None = None
    cudnn: Version | None = None
    """What it was built with; its DLLs are not in the wheel."""
    mkl: tuple[PipRequirement, ...] = ()
    """As pip installs it: the wheel loads MKL's and OpenMP's DLLs and does not bring them."""
    numpy: PipRequirement | None = None
    note: str | None = None


community_wheels = rows("community_wheels.toml", "wheels", CommunityWheel)
