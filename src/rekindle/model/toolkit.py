"""A CUDA toolkit on a computer: where it is, what it compiles for, and what it lacks."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version
from rekindle.model.card import Target


class CalledTool(msgspec.Struct, frozen=True, kw_only=True):
    """A program that nvcc really calls, found by a dry run."""

    path: str
    version: Version | None = None


class FoundToolkit(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    nvcc: str | None = None
    version: Version | None = None
    """nvcc's own word, `11.8.89`."""
    targets: tuple[Target, ...] = ()
    """What it compiles for, by asking it. Empty when it could not be asked."""
    found_by: tuple[str, ...] = ()
    """`PATH`, `CUDA_PATH`, `CUDA_HOME`, `program files`, `registry`, `/usr/local`, `distro`, `conda`, `pip`."""
    ptxas: CalledTool | None = None
    cicc: CalledTool | None = None
    right_ptxas: str | None = None
    """A ptxas of its own version that is on the machine, when it calls another."""
    missing: tuple[str, ...] = ()
    """Parts of a whole toolkit that are not there."""
    visual_studio_integration: bool | None = None
    """Windows: the MSBuild integration files are there. Ninja does not need them."""
    short_root: str | None = None
    """Windows: the 8.3 spelling of a root with spaces, where the volume has one."""
    trouble: str | None = None
    """Why something about it could not be asked."""

    @property
    def whole(self) -> bool:
        return self.nvcc is not None and not self.missing

    @property
    def own_ptxas(self) -> bool | None:
        """Does this nvcc call a ptxas of its own version? None when it could not be found out."""
        if self.version is None or self.ptxas is None or self.ptxas.version is None:
            return None
        return self.ptxas.version.major_minor == self.version.major_minor
