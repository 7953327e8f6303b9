"""What TORCH_CUDA_ARCH_LIST may hold, by release.

An extension's build (`torch.utils.cpp_extension`) refuses every number that is not in its own list; PyTorch's own build
leaves that to the compiler. Each of the two knows its own names of architectures.
"""

from __future__ import annotations

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, cached, decided, observed

_RECENT = 8


class ArchitectureLists(Row, frozen=True, kw_only=True):
    """One release. `extension` are the numbers (`9.0a`) that an extension may ask for, each also with `+PTX`."""

    minor: str
    extension: tuple[str, ...]
    extension_names: dict[str, str]
    build_names: dict[str, str]

    def names(self, *, builds_torch: bool) -> dict[str, str]:
        return self.build_names if builds_torch else self.extension_names


@cached
def _rows() -> tuple[ArchitectureLists, ...]:
    rows = observed("architecture_lists", dict[str, tuple[ArchitectureLists, ...]])["releases"]
    return tuple(sorted(rows, key=lambda row: Version(row.minor)))


def taken_by(torch: Version | None) -> ArchitectureLists:
    """The row of a release; the newest one where no release is given or the table ends before it."""
    if torch is None:
        return _rows()[-1]
    older = [row for row in _rows() if Version(row.minor) <= torch.major_minor]
    return older[-1] if older else _rows()[0]


def first_taking(arch: str) -> str | None:
    """The first release whose extensions may ask for this number."""
    return next((row.minor for row in _rows() if arch in row.extension), None)


def meanings(name: str, *, builds_torch: bool) -> frozenset[str]:
    """What a name stands for in the newest releases; empty among them where one does not know it."""
    return frozenset(row.names(builds_torch=builds_torch).get(name, "") for row in _rows()[-_RECENT:])


def first_naming(name: str, *, builds_torch: bool) -> str | None:
    """The first release that knows this name."""
    return next((row.minor for row in _rows() if name in row.names(builds_torch=builds_torch)), None)


class TritonTarget(Row, frozen=True, kw_only=True):
    """The first Triton that makes code for an architecture, and the torch that brings it."""

    target: str
    triton: str
    torch: str


@cached
def first_triton(capability: Capability) -> TritonTarget | None:
    rows = decided("triton_targets", dict[str, tuple[TritonTarget, ...]])["row"]
    return next((row for row in rows if row.target == capability.sm), None)
