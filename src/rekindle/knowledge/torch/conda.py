"""PyTorch on conda-forge: which CUDA each release was built with, and for which architectures."""

from __future__ import annotations

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Target
from rekindle.knowledge.tables import Row, cached, observed
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


@cached
def conda_builds() -> tuple[CondaBuild, ...]:
    return observed("conda_forge", dict[str, tuple[CondaBuild, ...]])["builds"]
